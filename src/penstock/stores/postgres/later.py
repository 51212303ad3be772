"""What this store does not have yet: asked for, it says so and changes nothing."""

from typing import NoReturn

from penstock.core.errors import StoreError


def refuse(what: str) -> NoReturn:
    """StoreError for a part of the contract that is still to come."""
    raise StoreError(f"{what} are not available on PostgreSQL yet; SQLite has them")
