"""Commands about tables: migrations, and the outbox in another database."""
