"""The tests of Penstock."""
