"""Tests of the test kit."""
