"""Signatures as the Standard Webhooks specification has them: how they are made and how they are checked."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.core.errors import OptionError
from penstock.service.webhooks.errors import SignatureError

PREFIX: Final = "whsec_"
FEWEST_BYTES: Final = 24
MOST_BYTES: Final = 64
TOLERANCE: Final = 300
"""Seconds that a receiver lets a message be old, or its sender's clock be ahead."""
_WANTED: Final = f"{PREFIX} and then {FEWEST_BYTES} to {MOST_BYTES} bytes in base 64"


def new_secret() -> str:
    """A secret that nobody can guess."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(field: str, secret: object) -> str:
    """The secret itself; OptionError, which does not repeat it, when it is none."""
    if not isinstance(secret, str) or not secret.startswith(PREFIX):
        raise OptionError(field, "something else", _WANTED)
    _key(field, secret)
    return secret


def signed(keys: Iterable[str], message: str, at: int, body: bytes) -> dict[str, str]:
    """The headers of a message, with a signature for each of the secrets; `at` in Unix seconds."""
    return {
        "webhook-id": message,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(_signature(key, message, at, body) for key in keys),
    }


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, *, now: float, tolerance: float = TOLERANCE
) -> str:
    """The id of a message that was signed with the secret and is not older than `tolerance` seconds.

    For receivers: `headers` are those of the request, `body` its bytes before anything reads them, and `now`
    is Unix time. SignatureError otherwise.
    """
    described = {name.lower(): value for name, value in headers.items()}
    message, stamp = described.get("webhook-id", ""), described.get("webhook-timestamp", "")
    if not message or not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
        raise SignatureError("the headers webhook-id and webhook-timestamp are not those of a message")
    if abs(now - int(stamp)) > tolerance:
        raise SignatureError(f"the message is more than {tolerance:g} s away from now")
    wanted = _signature(secret, message, stamp, body).encode()
    # Each is compared to its end, so that the time taken tells nothing.
    matches = [
        hmac.compare_digest(wanted, each.encode())
        for each in described.get("webhook-signature", "").split(" ")
    ]
    if not any(matches):
        raise SignatureError("no signature of the message was made with this secret")
    return message


def _signature(secret: str, message: str, at: int | str, body: bytes) -> str:
    digest = hmac.new(_key("secret", secret), f"{message}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def _key(field: str, secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise OptionError(field, "something else", _WANTED) from None
    if not FEWEST_BYTES <= len(key) <= MOST_BYTES:
        raise OptionError(field, f"{len(key)} bytes", _WANTED)
    return key
