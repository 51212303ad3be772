"""Tests of tasks: signatures, options, registration."""
