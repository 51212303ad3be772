"""Secrets at rest: sealed with a key of the settings, and opened for the entry that they were sealed for."""

import base64
import binascii
import hashlib
import secrets
from typing import Any, Final

import msgspec

from penstock.core.errors import ConfigError
from penstock.core.extras import install_command
from penstock.service.webhooks.errors import SealedSecretError

PREFIX: Final = "sealed:1:"
"""How a sealed text begins, with the version of the form. The id of the key, a colon and base 64 follow."""
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_WANTED: Final = f"{_KEY_BYTES} bytes in base 64, such as `openssl rand -base64 {_KEY_BYTES}` prints"


class SecretSealer:
    """Seals with the first of its keys, AES-256-GCM, and opens with any. Without a key texts stay in clear.

    What a text was sealed `about` has to be named to open it again: a sealed text that somebody moved to
    another entry does not open there.
    """

    def __init__(self, keys: tuple[bytes, ...] = ()) -> None:
        self._ciphers = {_id(key): _cipher(key) for key in keys}

    def __repr__(self) -> str:
        return f"SecretSealer({', '.join(self._ciphers) or 'no key'})"

    @classmethod
    def of(cls, text: str | None) -> "SecretSealer":
        """The sealer of the setting `secret_key`: keys with commas between. ConfigError repeats none."""
        given = [each.strip() for each in (text or "").split(",")]
        return cls(tuple(_read(each) for each in given if each))

    @property
    def has_key(self) -> bool:
        """False when texts stay in clear."""
        return bool(self._ciphers)

    def is_current(self, text: str) -> bool:
        """True when sealing the text again would change nothing but its noise."""
        if not self.has_key:
            return not is_sealed(text)
        return text.startswith(f"{PREFIX}{next(iter(self._ciphers))}:")

    def seal(self, text: str, *about: str) -> str:
        """The text, sealed with the first key; as it is where there is none."""
        if not self.has_key:
            return text
        name, cipher = next(iter(self._ciphers.items()))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        body = nonce + cipher.encrypt(nonce, text.encode(), _about(about))
        return f"{PREFIX}{name}:{base64.b64encode(body).decode()}"

    def open(self, text: str, *about: str) -> str:
        """The text behind a sealed one, or one in clear as it is; SealedSecretError when it does not open."""
        if not is_sealed(text):
            return text
        name, _, body = text.removeprefix(PREFIX).partition(":")
        cipher = self._ciphers.get(name)
        if cipher is None:
            known = ", ".join(self._ciphers) or "none"
            raise SealedSecretError(
                f"a secret of {'/'.join(about)} is sealed with the key {name}, and the setting secret_key "
                f"(PENSTOCK_SECRET_KEY) has: {known}"
            )
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.b64decode(body, validate=True)
            opened: bytes = cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _about(about))
            return opened.decode()
        except (InvalidTag, ValueError):
            raise SealedSecretError(
                f"a secret of {'/'.join(about)} was changed in the store, or belongs to another entry"
            ) from None


def is_sealed(text: str) -> bool:
    """True for a text that only its key opens."""
    return text.startswith(PREFIX)


def _read(text: str) -> bytes:
    try:
        key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"secret_key (PENSTOCK_SECRET_KEY): found something else, wanted {_WANTED}")
    return key


def _id(key: bytes) -> str:
    """A name for the key that tells nothing of it."""
    return hashlib.sha256(b"penstock secret key id\0" + key).hexdigest()[:8]


def _about(parts: tuple[str, ...]) -> bytes:
    return msgspec.json.encode([PREFIX, *parts])


def _cipher(key: bytes) -> Any:
    # Imported where it is wanted: who has no key needs no such package.
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"sealing secrets needs the package {error.name}: {install_command('service')}"
        ) from error
    return AESGCM(key)
