"""Who may do what: JWTs of issuers that are trusted, and API tokens that are kept hashed."""
