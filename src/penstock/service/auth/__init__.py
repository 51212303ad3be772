"""Authentication and scopes: JWTs of trusted issuers, and API tokens.

A token is stored as a hash only, and an error never repeats it. Begin reading in `authenticator.py`, then in
the module of one kind of token.
"""
