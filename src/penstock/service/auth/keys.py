"""A set of keys (JWKS) read strictly: bounded, of one family, public, and none of them weak."""

import base64
import binascii
import json
from typing import Any, Final, NoReturn

import jwt
import msgspec

from penstock.core.errors import ConfigError
from penstock.service.auth.issuers import Family
from penstock.service.auth.strict import unique_pairs

SET_BYTES: Final = 256 * 1024
MOST_KEYS: Final = 100
RSA_BITS: Final = (2_048, 8_192)
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_SECRET_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}


class Key(msgspec.Struct, frozen=True):
    """A key that signatures are checked with. `algorithms` are those that it is good for."""

    kid: str | None
    algorithms: frozenset[str]
    material: Any
    """The key as the library for signatures takes it; never shown."""

    def __repr__(self) -> str:
        return f"Key({self.kid!r})"


class KeySet(msgspec.Struct, frozen=True):
    """The keys of an issuer."""

    keys: tuple[Key, ...]

    def find(self, kid: str | None, alg: str) -> Key | None:
        """The key of that name; without a name the only one there is for the algorithm."""
        fitting = [key for key in self.keys if alg in key.algorithms and kid in (None, key.kid)]
        return fitting[0] if len(fitting) == 1 else None


def read_key_set(text: bytes, family: Family) -> KeySet:
    """The keys that can be used; ConfigError when the set as a whole cannot be trusted, or has none.

    Keys of other families or for other uses are passed over: issuers publish them together.
    """
    if len(text) > SET_BYTES:
        _wrong(f"{len(text)} bytes", f"at most {SET_BYTES}")
    try:
        found = json.loads(text, object_pairs_hook=unique_pairs)
    except (ValueError, RecursionError):
        _wrong("something else", "a JSON object with keys")
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        _wrong("something else", "a JSON object with keys")
    if len(listed) > MOST_KEYS:
        _wrong(f"{len(listed)} keys", f"at most {MOST_KEYS}")
    keys = tuple(_key(each, family) for each in listed if _is_meant(each, family))
    if not keys:
        _wrong("no key", f"one or more of the family {family}")
    names = [key.kid for key in keys]
    if len(set(names)) != len(names):
        _wrong("two keys of one name", "a kid of its own for each key")
    return KeySet(keys)


def _is_meant(found: dict[str, Any], family: Family) -> bool:
    curves = {Family.EDDSA: ["Ed25519"], Family.ES: list(_CURVES)}.get(family)
    is_of_family = found.get("kty") == family.key_type and (curves is None or found.get("crv") in curves)
    operations = found.get("key_ops", ["verify"])
    is_for_signatures = (
        found.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    )
    return is_of_family and is_for_signatures and found.get("alg", family.algorithms[0]) in family.algorithms


def _key(found: dict[str, Any], family: Family) -> Key:
    kid = found.get("kid")
    if kid is not None and not isinstance(kid, str):
        _wrong("a kid that is no text", "text")
    if family is not Family.HS and "d" in found:
        _wrong("a private key", "public keys alone")
    try:
        algorithms = _algorithms(found, family)
        material = jwt.PyJWK(found, algorithm=min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, binascii.Error):
        _wrong("a key that cannot be read", f"keys of the family {family}")
    if family.key_type == "RSA" and not RSA_BITS[0] <= material.key_size <= RSA_BITS[1]:
        _wrong(f"an RSA key of {material.key_size} bits", f"{RSA_BITS[0]} to {RSA_BITS[1]}")
    return Key(kid, algorithms, material)


def _algorithms(found: dict[str, Any], family: Family) -> frozenset[str]:
    if family is Family.ES:
        allowed = {_CURVES[found["crv"]]}
    elif family is Family.HS:
        secret = base64.urlsafe_b64decode(found["k"] + "=" * (-len(found["k"]) % 4))
        allowed = {alg for alg, least in _SECRET_BYTES.items() if len(secret) >= least}
        if not allowed:
            _wrong(f"a secret of {len(secret)} bytes", f"{min(_SECRET_BYTES.values())} or more")
    else:
        allowed = set(family.algorithms)
    named = allowed & {found["alg"]} if "alg" in found else allowed
    if not named:
        _wrong("a key whose alg does not fit it", "the alg of its curve or length")
    return frozenset(named)


def _wrong(found: str, wanted: str) -> NoReturn:
    raise ConfigError(f"the keys of an issuer: found {found}, wanted {wanted}")
