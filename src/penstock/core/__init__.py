"""What can be decided without a store: pure functions and values."""
