"""The store of a service elsewhere."""
