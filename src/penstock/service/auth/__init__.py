"""Authentication and scopes: JWTs of trusted issuers, and API tokens that are stored as hashes."""
