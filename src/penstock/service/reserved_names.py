"""Names that the service reserves for itself: no token changes queues with such a name."""

from typing import Final

from penstock.service.errors import ForbiddenError
from penstock.service.principal import Verb

PREFIX: Final = "penstock."
"""The prefix of the service's own queues and event readers."""


def is_reserved(name: str) -> bool:
    """True for a name of the service's own.

    >>> is_reserved("penstock.webhooks"), is_reserved("mail")
    (True, False)
    """
    return name.startswith(PREFIX)


def check_queue(verb: Verb | None, queue: str) -> None:
    """ForbiddenError for a queue of the service's own, unless it is only looked at."""
    if verb is not Verb.READ and is_reserved(queue):
        raise ForbiddenError(
            f"queue {queue!r} is the service's own, as all that begin with {PREFIX!r}: it can be read, and "
            "what waits there for a webhook is handled by /v1/webhooks"
        )


def check_reader(name: str) -> None:
    """ForbiddenError for a reader of the service's own."""
    if is_reserved(name):
        raise ForbiddenError(
            f"reader {name!r} is the service's own, as all that begin with {PREFIX!r}: wanted another name"
        )
