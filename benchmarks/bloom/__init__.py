"""The Bloom filters, each on and off."""
