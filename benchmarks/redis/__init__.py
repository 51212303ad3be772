"""Penstock on Redis or Valkey beside its peers there, and beside its own scripts called by a bare loop."""
