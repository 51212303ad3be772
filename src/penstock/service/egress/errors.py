"""Errors of requests that leave the service."""

from penstock.core.errors import PenstockError


class EgressError(PenstockError):
    """A request out of the service was not made, or got no answer."""


class AddressRefusedError(EgressError):
    """A request would have gone to an address that is not allowed; nothing was sent."""
