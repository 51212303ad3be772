"""The file that names the accepted issuers, their algorithms, and where their keys are."""

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec

from penstock.core.errors import ConfigError
from penstock.service.auth.scopes import is_pattern

AUDIENCE: Final = "penstock"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
Seconds = Annotated[float, msgspec.Meta(gt=0, le=366 * 86_400)]


class Family(StrEnum):
    """Algorithms that one kind of key is used with. An issuer has one: no key is ever tried with another."""

    RS = "RS"
    PS = "PS"
    ES = "ES"
    EDDSA = "EdDSA"
    HS = "HS"

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The algorithm names that the header of a token may have."""
        return ("EdDSA",) if self is Family.EDDSA else tuple(f"{self}{bits}" for bits in (256, 384, 512))

    @property
    def key_type(self) -> str:
        """The `kty` of its keys."""
        return {Family.HS: "oct", Family.ES: "EC", Family.EDDSA: "OKP"}.get(self, "RSA")


class Issuer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An issuer of tokens. `jwks` is the url or file of its keys. Times are seconds."""

    issuer: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
    family: Family
    jwks: Annotated[str, msgspec.Meta(min_length=1, max_length=2_048)]
    tenants: tuple[str, ...] = ("*",)
    """Patterns of the tenants that it speaks for."""
    operators: bool = False
    """Whether it may name several tenants in one token."""
    max_lifetime: Seconds = 86_400.0
    leeway: Annotated[float, msgspec.Meta(ge=0, le=300)] = 10.0
    refresh: Seconds = 600.0
    """How long keys are used before they are asked for again."""
    keep: Seconds = 3_600.0
    """How long keys are used at most while they cannot be asked for."""

    @property
    def is_remote(self) -> bool:
        """True where the keys are at a url."""
        return "://" in self.jwks


class AuthFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file. `audience` is the audience that tokens must have."""

    issuers: tuple[Issuer, ...]
    audience: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)] = AUDIENCE


def read_auth_file(path: Path) -> AuthFile:
    """The file; ConfigError names what in it cannot be used."""
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        return checked(msgspec.convert(found, AuthFile), path.parent)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None


def checked(auth: AuthFile, folder: Path) -> AuthFile:
    """The same with paths seen from a folder; ConfigError for what types do not tell."""
    issuers = tuple(_checked(each, folder) for each in auth.issuers)
    names = [each.issuer for each in issuers]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"issuers: found {name} twice, wanted each issuer once")
    return msgspec.structs.replace(auth, issuers=issuers)


def _checked(issuer: Issuer, folder: Path) -> Issuer:
    for pattern in issuer.tenants:
        if not is_pattern(pattern):
            raise ConfigError(
                f"issuers.tenants: found {pattern!r}, wanted names of tenants, with * for any signs"
            )
    if issuer.keep < issuer.refresh:
        raise ConfigError(f"issuers.keep: found {issuer.keep:g}, wanted refresh ({issuer.refresh:g}) or more")
    if not issuer.is_remote:
        return msgspec.structs.replace(issuer, jwks=str(folder / issuer.jwks))
    url = urlsplit(issuer.jwks)
    is_private = url.scheme == "http" and url.hostname in _LOOPBACK
    if (url.scheme != "https" and not is_private) or not url.hostname or url.username or url.password:
        raise ConfigError(
            "issuers.jwks: found a url that is not https or names a user, wanted https://host/path"
        )
    if issuer.family is Family.HS:
        raise ConfigError(
            "issuers.jwks: found a url for secret keys, wanted a file: HS keys are never published"
        )
    return issuer
