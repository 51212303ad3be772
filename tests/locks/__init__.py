"""Tests of the locked requirements, and `make audit`."""
