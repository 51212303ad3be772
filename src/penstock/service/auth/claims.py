"""Checks the claims of a token whose signature was verified."""

from typing import Any, Final

from penstock.core.errors import InvalidNameError
from penstock.core.names import check_name
from penstock.service.auth.bearer import Bearer
from penstock.service.auth.issuers import Issuer
from penstock.service.auth.scopes import ALL, Scopes, matches, read_scopes
from penstock.service.auth.strict import refuse, seconds
from penstock.stores.values import EVERYONE

TENANT_CLAIMS: Final = ("tid", "tenantId", "tenant_id", "organizationId", "organization_id")
OPERATOR_CLAIM: Final = "tenants"
MOST_TENANTS: Final = 1_000
SUBJECT_CHARS: Final = 255


def bearer_of(claims: dict[str, Any], issuer: Issuer, audience: str, now: float) -> Bearer:
    """The principal of the claims; UnauthenticatedError unless each is present, valid and current."""
    if claims.get("iss") != issuer.issuer:
        refuse("it is from another issuer")
    _check_audience(claims.get("aud"), audience)
    check_times(claims, issuer, now)
    subject = _subject(claims)
    scopes = _scopes(claims)
    tenant = _tenant(claims)
    if OPERATOR_CLAIM in claims:
        if tenant is not None:
            refuse("it names both a tenant and tenants")
        return Bearer(EVERYONE, subject, scopes, _tenants(claims[OPERATOR_CLAIM], issuer))
    if tenant is None:
        refuse("it names no tenant")
    _check_within(tenant, issuer)
    return Bearer(tenant, subject, scopes)


def _check_audience(found: Any, audience: str) -> None:
    named = [found] if isinstance(found, str) else found
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        refuse("it has no aud")
    if audience not in named:
        refuse("it is for another audience")


def check_times(claims: dict[str, Any], issuer: Issuer, now: float) -> None:
    """UnauthenticatedError unless a token with these claims is good now."""
    issued, expires = seconds(claims, "iat"), seconds(claims, "exp")
    begins = seconds(claims, "nbf")
    if issued is None or expires is None:
        refuse("it has no iat or no exp")
    if expires <= issued or expires - issued > issuer.max_lifetime:
        refuse("it is good for longer than its issuer allows, or for no time at all")
    if issued > now + issuer.leeway or (begins is not None and begins > now + issuer.leeway):
        refuse("it is not good yet")
    if expires <= now - issuer.leeway:
        refuse("it has expired")


def _subject(claims: dict[str, Any]) -> str:
    found = claims.get("sub")
    if not isinstance(found, str) or not 0 < len(found) <= SUBJECT_CHARS or not found.isprintable():
        refuse("it has no sub")
    return found


def _tenant(claims: dict[str, Any]) -> str | None:
    """The tenant that all claims about it agree on; None where there are none."""
    said = [claims[name] for name in TENANT_CLAIMS if name in claims]
    if not said:
        return None
    if any(each != said[0] or type(each) is not str for each in said):
        refuse("its claims about the tenant do not agree")
    return _name(said[0])


def _name(found: Any) -> str:
    try:
        return check_name("tenant", found)
    except InvalidNameError:
        refuse("it names a tenant that cannot be one")


def _tenants(found: Any, issuer: Issuer) -> tuple[str, ...]:
    """The tenants of an operator; `*` stands for all, where the issuer may speak for all."""
    if not issuer.operators:
        refuse("its issuer has no operators")
    if not isinstance(found, list) or not 0 < len(found) <= MOST_TENANTS:
        refuse(f"its tenants are no list of 1 to {MOST_TENANTS} names")
    if found == [ALL]:
        if issuer.tenants != (ALL,):
            refuse("its issuer does not speak for all tenants")
        return (ALL,)
    names = tuple(dict.fromkeys(_name(each) for each in found))
    for name in names:
        _check_within(name, issuer)
    return names


def _check_within(tenant: str, issuer: Issuer) -> None:
    if not any(matches(pattern, tenant) for pattern in issuer.tenants):
        refuse("its issuer does not speak for this tenant")


def _scopes(claims: dict[str, Any]) -> Scopes:
    """Scopes are words in `scope`, or in `scp` as text or list; together where both are there."""
    words: list[str] = []
    for name in ("scope", "scp"):
        found = claims.get(name, "")
        listed = found.split(" ") if isinstance(found, str) else found
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            refuse(f"its {name} are no words")
        words += listed
    return read_scopes(words)
