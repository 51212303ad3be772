"""Tokens that are wrong in one thing, and refused for it: forged, confused, stale, ambiguous, for others."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from penstock.service.auth.authenticator import TokenAuthenticator
from penstock.service.auth.issuers import Family
from penstock.service.auth.keys import read_key_set
from penstock.service.auth.sources import FixedKeys
from penstock.service.auth.strict import TOKEN_CHARS
from penstock.service.errors import UnauthenticatedError
from tests.service.auth.kit import ISSUER, NOW, Signer, encoded, good, issuer, key_set

OURS: Final = Signer("k1")
SECOND: Final = Signer("k2")
OTHERS: Final = Signer("k1")
"""Another's key under our name."""
ELSEWHERE: Final = Signer("e1", "EdDSA")
"""Of an issuer that is trusted too, for a tenant of its own."""
ELSEWHERES: Final = "https://else.example.org/"
HEADER: Final = '{"alg":"ES256","typ":"JWT","kid":"k1"}'


def authenticator() -> TokenAuthenticator:
    """One that knows two issuers."""
    ours = issuer(tenants=("acme", "globex-*"))
    other = issuer(family=Family.EDDSA, tenants=("else",), operators=True)
    other = type(other)(
        **{name: getattr(other, name) for name in other.__struct_fields__} | {"issuer": ELSEWHERES}
    )
    return TokenAuthenticator(
        [
            (ours, FixedKeys(read_key_set(key_set(OURS, SECOND), Family.ES))),
            (other, FixedKeys(read_key_set(key_set(ELSEWHERE), Family.EDDSA))),
        ],
        clock=lambda: NOW,
    )


def with_secret(secret: bytes) -> str:
    """A token signed with text that is public, as if it were a secret."""
    start = f"{encoded(HEADER.replace('ES256', 'HS256'))}.{encoded(json.dumps(good()))}"
    return f"{start}.{encoded(hmac.digest(secret, start.encode(), hashlib.sha256))}"


def public_pem() -> bytes:
    """Our public key as many programs keep it."""
    found: bytes = OURS.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def unsigned(alg: str) -> str:
    """A token without a signature."""
    return f"{encoded(HEADER.replace('ES256', alg))}.{encoded(json.dumps(good()))}."


def resigned(signature: Callable[[bytes], bytes]) -> str:
    """A good token with its signature made into another."""
    start, _, end = OURS.token().rpartition(".")
    return f"{start}.{encoded(signature(base64.urlsafe_b64decode(end + '==')))}"


def part(number: int, text: str) -> str:
    """A good token with another part in one place, which was not signed."""
    parts = OURS.token().split(".")
    parts[number] = text
    return ".".join(parts)


def loose_bits() -> str:
    """A good token whose last sign has bits that decoders drop."""
    token = OURS.token()
    signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + signs[signs.index(token[-1]) + 1]


def der(raw: bytes) -> bytes:
    """The same signature in the form of certificates."""
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    return encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))


def claims(**changed: Any) -> Callable[[], str]:
    """A token that is good, but for its claims."""
    return lambda: OURS.token(good(**changed))


def header(**changed: Any) -> Callable[[], str]:
    """A token that is good, but for its header."""
    return lambda: OURS.token(None, **changed)


def text(body: str | bytes) -> Callable[[], str]:
    """A token whose body is exactly this."""
    return lambda: OURS.sign(HEADER, body)


GOOD: Final = json.dumps(good())
ATTACKS: Final[dict[str, Callable[[], str]]] = {
    "alg none without a signature": lambda: unsigned("none"),
    "alg None in capitals": lambda: unsigned("None"),
    "alg nOnE in both": lambda: unsigned("nOnE"),
    "alg none with a signature": header(alg="none"),
    "no signature at all": lambda: unsigned("ES256"),
    "the public key as a secret": lambda: with_secret(public_pem()),
    "the published key as a secret": lambda: with_secret(json.dumps(OURS.public).encode()),
    "an empty secret": lambda: with_secret(b""),
    "another key under our name": lambda: OTHERS.token(),
    "another of our keys than it says": lambda: SECOND.token(None, kid="k1"),
    "a key of another trusted issuer": lambda: ELSEWHERE.token(good()),
    "a key of another issuer with our alg": lambda: ELSEWHERE.token(good(), alg="ES256", kid="k1"),
    "another issuer for a tenant not its own": lambda: ELSEWHERE.token(good(iss=ELSEWHERES)),
    "a signature of zeros": lambda: resigned(lambda raw: bytes(len(raw))),
    "a signature cut short": lambda: resigned(lambda raw: raw[:-1]),
    "a signature with more behind it": lambda: resigned(lambda raw: raw + b"\0"),
    "a signature in another form": lambda: resigned(der),
    "a signature with a bit changed": lambda: resigned(lambda raw: bytes([raw[0] ^ 1]) + raw[1:]),
    "other claims under a good signature": lambda: part(1, encoded(json.dumps(good(tid="globex-1")))),
    "another header under a good signature": lambda: part(0, encoded(HEADER.replace("k1", "k2"))),
    "no alg": header(alg=None),
    "an alg in small letters": header(alg="es256"),
    "an alg of another length": header(alg="ES384"),
    "an alg of another family": header(alg="RS256"),
    "a list of algs": header(alg=["ES256"]),
    "a number as alg": header(alg=256),
    "keys named by jku": header(jku="https://evil.example.org/keys"),
    "a key within the token": header(jwk=OTHERS.public),
    "a certificate named by x5u": header(x5u="https://evil.example.org/cert"),
    "a certificate within the token": header(x5c=["MIIB"]),
    "a critical header": header(crit=["exp"]),
    "an unencoded body": header(crit=["b64"], b64=False),
    "a compressed body": header(zip="DEF"),
    "a token within a token": header(cty="JWT"),
    "a kid that is a path": header(kid="../../../../dev/null"),
    "a kid that is SQL": header(kid="k1' OR '1'='1"),
    "a kid that is a url": header(kid="https://evil.example.org/k1"),
    "a kid that is a list": header(kid=["k1"]),
    "an empty kid": header(kid=""),
    "a kid that nobody has": header(kid="k3"),
    "no kid where there are two keys": header(kid=None),
    "no typ": header(typ=None),
    "an identity token by its typ": header(typ="logout+jwt"),
    "a typ that is no text": header(typ=1),
    "expired": claims(exp=NOW - 11),
    "no exp": claims(exp=None),
    "an exp that is text": claims(exp=str(NOW + 300)),
    "an exp that is true": claims(exp=True),
    "an exp that is NaN": text(GOOD.replace(str(NOW + 300), "NaN")),
    "an exp that is infinite": text(GOOD.replace(str(NOW + 300), "1e999")),
    "an exp of a thousand digits": text(GOOD.replace(str(NOW + 300), "9" * 1_000)),
    "an exp below zero": claims(exp=-1, iat=-2),
    "good for longer than allowed": claims(exp=NOW + 86_400),
    "an exp before its iat": claims(iat=NOW + 5, exp=NOW + 4),
    "no iat": claims(iat=None),
    "an iat that is text": claims(iat=str(NOW)),
    "an iat to come": claims(iat=NOW + 11),
    "an nbf to come": claims(nbf=NOW + 11),
    "an nbf that is text": claims(nbf="0"),
    "no iss": claims(iss=None),
    "an iss that nobody knows": claims(iss="https://evil.example.org/"),
    "an iss without its slash": claims(iss=ISSUER.rstrip("/")),
    "a list of iss": claims(iss=[ISSUER]),
    "no aud": claims(aud=None),
    "another's aud": claims(aud="billing"),
    "an aud that begins like ours": claims(aud="penstock-admin"),
    "an empty list of aud": claims(aud=[]),
    "an aud with a number in it": claims(aud=["penstock", 1]),
    "no sub": claims(sub=None),
    "an empty sub": claims(sub=""),
    "a sub that is a number": claims(sub=1),
    "a sub with a line break": claims(sub="ada\nadmin"),
    "no tenant": claims(tid=None),
    "two tenants that disagree": claims(organization_id="globex-1"),
    "a tenant that is a number": claims(tid=1),
    "a tenant that is null": lambda: OURS.token(good() | {"tid": None}),
    "a tenant beside another kind": claims(tenantId=["acme"]),
    "a tenant with a slash": claims(tid="acme/mail"),
    "a tenant that means all": claims(tid="*"),
    "an empty tenant": claims(tid=""),
    "a tenant that its issuer has not": claims(tid="initech"),
    "a list of tenants without the right": claims(tid=None, tenants=["acme"]),
    "a tenant beside a list of them": lambda: ELSEWHERE.token(
        good(iss=ELSEWHERES, tid="else", tenants=["else"])
    ),
    "a list of tenants with another's": lambda: ELSEWHERE.token(
        good(iss=ELSEWHERES, tid=None, tenants=["acme"])
    ),
    "a list of all tenants": lambda: ELSEWHERE.token(good(iss=ELSEWHERES, tid=None, tenants=["*"])),
    "scopes that are a number": claims(scope=7),
    "scopes with a number in them": claims(scp=["read", 7]),
    "a claim that stands there twice": text(GOOD[:-1] + ', "tid": "globex-1"}'),
    "a header that stands there twice": lambda: OURS.sign(HEADER[:-1] + ',"alg":"none"}', GOOD),
    "a body that is a list": text("[" + GOOD + "]"),
    "a body that is no JSON": text("tid=acme"),
    "a body in other letters": text(GOOD.encode("utf-16")),
    "a body with a mark before it": text(b"\xef\xbb\xbf" + GOOD.encode()),
    "a body that is deep": text('{"a":' * 30 + "1" + "}" * 30),
    "a body that is far too deep": text("[" * 4_000),
    "padding": lambda: OURS.token() + "==",
    "the other base64": lambda: part(2, "+/" * 43),
    "bits that decoders drop": loose_bits,
    "a space in it": lambda: OURS.token().replace(".", ". ", 1),
    "two parts": lambda: OURS.token().rpartition(".")[0],
    "four parts": lambda: OURS.token() + ".e30",
    "five parts": lambda: OURS.token() + ".e30.e30",
    "empty parts": lambda: "..",
    "a token as JSON": lambda: json.dumps({"payload": encoded(GOOD), "signatures": []}),
    "longer than any token": lambda: OURS.token(good(more="x" * TOKEN_CHARS)),
    "no token": lambda: "",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_a_token_is_refused_with(attack: Callable[[], str]) -> None:
    """And what is said of it repeats nothing of it."""
    token = attack()

    with pytest.raises(UnauthenticatedError) as refused:
        await authenticator().authenticate({"authorization": f"Bearer {token}"})

    assert not any(piece and piece in str(refused.value) for piece in token.split("."))


def test_there_are_many_attacks() -> None:
    assert len(ATTACKS) >= 40


async def test_the_same_tokens_without_a_fault_are_accepted() -> None:
    """So that each of the others is refused for its own fault."""
    found = [
        await authenticator().authenticate({"authorization": f"Bearer {token}"})
        for token in (
            OURS.token(),
            SECOND.token(good(tid="globex-7", aud=["billing", "penstock"])),
            OURS.sign(HEADER, GOOD),
            OURS.token(None, typ="at+JWT"),
            OURS.token(good(exp=NOW - 9, nbf=NOW + 9, iat=NOW - 600.5)),
            OURS.token(good(tid=None, organizationId="acme", tenant_id="acme")),
            ELSEWHERE.token(good(iss=ELSEWHERES, tid="else")),
            ELSEWHERE.token(good(iss=ELSEWHERES, tid=None, tenants=["else"])),
        )
    ]

    assert [each.tenant for each in found] == [
        "acme", "globex-7", "acme", "acme", "acme", "acme", "else", "*",
    ]  # fmt: skip
    assert [each.tenants for each in found] == [()] * 7 + [("else",)]
    assert {each.subject for each in found} == {"ada"}


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YWRhOmFkYQ==",
        "Bearer  {token}",
        "Bearer {token} ",
        "Bearer {token}, Bearer {token}",
        "Bearer {token} {token}",
        "{token}",
        "Bearer\t{token}",
        'Bearer token="{token}"',
    ],
)
async def test_a_header_that_shows_no_single_token_is_refused(said: str) -> None:
    with pytest.raises(UnauthenticatedError):
        await authenticator().authenticate({"authorization": said.format(token=OURS.token())})


async def test_without_a_header_nobody_gets_in() -> None:
    with pytest.raises(UnauthenticatedError) as refused:
        await authenticator().authenticate({"x-authorization": f"Bearer {OURS.token()}"})

    assert refused.value.headers["www-authenticate"].startswith("Bearer")


async def test_a_token_that_was_accepted_once_still_expires() -> None:
    now = float(NOW)
    ours = issuer()
    keys = FixedKeys(read_key_set(key_set(OURS), Family.ES))
    known = TokenAuthenticator([(ours, keys)], clock=lambda: now)
    token = OURS.token()
    first, again = await known.bearer(token), await known.bearer(token)
    now += 311

    assert first == again
    with pytest.raises(UnauthenticatedError, match="expired"):
        await known.bearer(token)
