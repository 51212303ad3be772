"""Which texts may be names, ids and keys."""

import re
from typing import Final

from penstock.core.errors import InvalidNameError

NAME_FORM: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_NAME: Final = re.compile(NAME_FORM)
NAME_WANTED: Final = "1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit"
WORKER_FORM: Final = r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}"
"""The form of a worker's name, as a regular expression: it stands in logs, records and tables."""
WORKER_WANTED: Final = "1 to 128 letters, digits, '.', '_', ':', '@' or '-', the first a letter or digit"
_WORKER: Final = re.compile(WORKER_FORM)
KEY_BYTES: Final = 512


def check_name(field: str, name: object) -> str:
    """The name itself, or InvalidNameError: tenants, queues, tasks and job ids."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidNameError(field, name, NAME_WANTED)
    return name


def check_worker(field: str, name: object) -> str:
    """The name of a worker itself, or InvalidNameError. Everywhere the same: in Python and over HTTP.

    >>> check_worker("worker", "host-1:4711@eu")
    'host-1:4711@eu'
    """
    if not isinstance(name, str) or not _WORKER.fullmatch(name):
        raise InvalidNameError(field, name, WORKER_WANTED)
    return name


def check_key(field: str, key: object) -> str:
    """The key itself, or InvalidNameError: free text of 1 to 512 bytes in UTF-8."""
    wanted = f"text of 1 to {KEY_BYTES} bytes in UTF-8"
    if not isinstance(key, str):
        raise InvalidNameError(field, key, wanted)
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidNameError(field, key, f"{wanted}, without lone surrogates") from None
    if not 0 < size <= KEY_BYTES:
        raise InvalidNameError(field, key, wanted)
    return key
