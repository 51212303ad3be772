"""Tests of the producing side: app, client, handles."""
