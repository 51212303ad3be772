"""The PostgreSQL store beside its peers on one server."""
