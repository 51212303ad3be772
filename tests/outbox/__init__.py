"""Outboxes, and the relays that carry what is in them."""
