"""Errors of webhooks, their signatures and their secrets."""

from penstock.core.errors import PenstockError


class WebhookNotFoundError(PenstockError, LookupError):
    """No webhook, or no delivery of one, with that id."""


class SignatureError(PenstockError):
    """A webhook was not signed with the secret, or too long ago."""


class SealedSecretError(PenstockError):
    """A stored secret is sealed with a key that is not in the settings, or was changed in the store."""
