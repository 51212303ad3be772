"""Commands about tables: migrations, and the outbox in another database.

Begin reading in `migrate_commands.py`.
"""
