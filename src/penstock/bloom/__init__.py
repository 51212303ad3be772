"""Bloom filters that spare calls to a store. What they say is a hint: the store decides."""
