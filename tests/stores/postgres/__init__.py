"""What only the PostgreSQL store does."""
