"""A JWT taken apart in the one way that every reader would, before anything in it is believed."""

import base64
import binascii
import json
import re
from typing import Any, Final, NoReturn

import msgspec

from penstock.service.errors import UnauthenticatedError

TOKEN_CHARS: Final = 8_192
KID_CHARS: Final = 256
DEPTH: Final = 16
_LATEST: Final = 10**11
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]+")
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_FORBIDDEN: Final = (
    "jku",
    "jwk",
    "x5u",
    "x5c",
    "crit",
    "zip",
    "b64",
    "enc",
    "cty",
    "epk",
    "p2s",
    "p2c",
    "apu",
    "apv",
)
"""Names of keys elsewhere, of readers that have to do more, and of encryption: nothing that is done here."""


class Unverified(msgspec.Struct, frozen=True):
    """A token that looks like one. Nothing in it is true until its signature was checked."""

    alg: str
    kid: str | None
    issuer: str
    claims: dict[str, Any]


def refuse(why: str) -> NoReturn:
    """UnauthenticatedError; what it says never holds a part of the token."""
    raise UnauthenticatedError(f"the token is not accepted: {why}")


def read_token(token: str) -> Unverified:
    """The parts of a compact JWS; UnauthenticatedError for anything that is not exactly one."""
    if len(token) > TOKEN_CHARS:
        refuse(f"it is longer than {TOKEN_CHARS} characters")
    parts = token.split(".")
    if len(parts) != 3:
        refuse("it is no signed JWT of three parts")
    header, claims, _ = (_bytes(part) for part in parts)
    head = _object("header", header)
    for name in _FORBIDDEN:
        if name in head:
            refuse(f"its header has {name}")
    alg, kid, kind = head.get("alg"), head.get("kid"), head.get("typ")
    if not isinstance(alg, str):
        refuse("its header has no alg")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        refuse("its typ is neither JWT nor at+jwt")
    if kid is not None and (not isinstance(kid, str) or not 0 < len(kid) <= KID_CHARS):
        refuse("its kid is no name of a key")
    body = _object("body", claims)
    issuer = body.get("iss")
    if not isinstance(issuer, str):
        refuse("it has no iss")
    return Unverified(alg, kid, issuer, body)


def _bytes(part: str) -> bytes:
    if not _SEGMENT.fullmatch(part):
        refuse("a part of it is not base64url")
    try:
        found = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        refuse("a part of it is not base64url")
    # Bits that decoders drop could make two texts of one token.
    if base64.urlsafe_b64encode(found).rstrip(b"=") != part.encode():
        refuse("a part of it is not base64url")
    return found


def _object(what: str, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text.decode(), object_pairs_hook=unique_pairs, parse_constant=_no_number)
    except (ValueError, RecursionError):
        refuse(f"its {what} is not JSON, or says something twice")
    if not isinstance(found, dict) or _depth(found) > DEPTH:
        refuse(f"its {what} is no plain JSON object")
    return found


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; ValueError when a name stands there twice, as readers disagree about its value."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= DEPTH:
        depth += 1
        inner = (
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, dict | list)
        )
        level = [value for values in inner for value in values]
    return depth


def seconds(claims: dict[str, Any], name: str) -> float | None:
    """A time among the claims; None where it is not told, UnauthenticatedError where it is no time."""
    found = claims.get(name)
    if name not in claims:
        return None
    # No NaN is in a range, and no int is turned into a float before it is seen to be one.
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < _LATEST:
        refuse(f"its {name} is no time in seconds")
    return float(found)
