"""API tokens, the development key, scopes, operators, and the file that names issuers."""

import base64
from pathlib import Path

import msgspec
import pytest

from penstock.core.errors import ConfigError, InvalidError, OptionError
from penstock.core.job import QueueRef
from penstock.service.auth.api_tokens import KNOWN_SECONDS, MOST, NAMESPACE, ApiToken, ApiTokens
from penstock.service.auth.authenticator import TENANT_HEADER, authenticator_of
from penstock.service.auth.bearer import Bearer
from penstock.service.auth.development import DevelopmentKey
from penstock.service.auth.issuers import Family, read_auth_file
from penstock.service.auth.scopes import Scopes, check_scopes, read_scopes
from penstock.service.errors import ForbiddenError, UnauthenticatedError
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import EVERYONE
from penstock.testing.conformance.parts import Part
from tests.conformance.having import served
from tests.service.auth.kit import NOW


@served(Part.KEY_VALUE)
async def test_an_api_token_is_good_until_it_is_revoked(store: Store, queue: QueueRef) -> None:
    now = 0.0
    tokens = ApiTokens(store, clock=lambda: now)
    text, kept = await tokens.make(tenants=[queue.tenant], subject="ci", scopes=["enqueue:mail"])
    bearer = await tokens.bearer(text)

    assert bearer == Bearer(queue.tenant, "ci", check_scopes("", ["enqueue:mail"]))
    assert kept in await tokens.all(queue.tenant)
    assert await ApiTokens(store).revoke(kept.id)
    now += KNOWN_SECONDS
    with pytest.raises(UnauthenticatedError):
        await tokens.bearer(text)
    assert await tokens.all(queue.tenant) == []
    assert not await tokens.revoke(kept.id)


async def test_nothing_of_an_api_token_is_kept_but_a_hash() -> None:
    store = MemoryStore()
    text, kept = await ApiTokens(store).make(tenants=["acme"], subject="ci", scopes=["read"])
    [entry] = await store.key_value.list_entries(EVERYONE, NAMESPACE)
    secret = text.removeprefix("pst_").partition("_")[2]

    assert secret.encode() not in entry.body
    assert base64.urlsafe_b64decode(secret + "=").hex().encode() not in entry.body
    assert kept.id.encode() in entry.body


async def test_an_api_token_is_refused_if_any_of_it_is_changed() -> None:
    tokens = ApiTokens(MemoryStore())
    text, _ = await tokens.make(tenants=["acme"], subject="ci", scopes=["read"])
    other, _ = await tokens.make(tenants=["globex"], subject="ci", scopes=["read"])
    mixed = text[: text.index("_", 4)] + other[other.index("_", 4) :]

    for wrong in (
        mixed,
        text[:-1],
        text + "x",
        text.upper(),
        "pst_",
        text.replace("pst_", "pst_0"),
        f" {text}",
    ):
        with pytest.raises(UnauthenticatedError):
            await tokens.bearer(wrong)


async def test_an_api_token_expires_by_the_clock_of_the_store() -> None:
    store = MemoryStore(clock_us=lambda: 1_800_000_000_000_000)
    now = 0.0
    tokens = ApiTokens(store, clock=lambda: now)
    text, _ = await tokens.make(tenants=["acme"], subject="ci", scopes=["read"], seconds=60)
    await store.clock.advance_clock(59_000)
    await tokens.bearer(text)
    now += 0.9
    await tokens.bearer(text)
    now += 0.1
    await store.clock.advance_clock(1_000)

    with pytest.raises(UnauthenticatedError, match="expired"):
        await tokens.bearer(text)


@pytest.mark.parametrize(
    ("tenants", "subject", "scopes"),
    [
        ([], "ci", ["read"]),
        (["acme", "globex"], "ci", ["read"]),
        (["*"], "ci", ["read"]),
        (["acme/x"], "ci", ["read"]),
        (["acme"], "", ["read"]),
        (["acme"], "a\nb", ["read"]),
        (["acme"], "ci", []),
        (["acme"], "ci", ["write"]),
        (["acme"], "ci", ["read:"]),
        (["acme"], "ci", ["read:a b"]),
    ],
)
async def test_an_api_token_that_cannot_be_is_not_made(
    tenants: list[str], subject: str, scopes: list[str]
) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidError):
        await ApiTokens(store).make(tenants=tenants, subject=subject, scopes=scopes)
    assert await store.key_value.list_entries(EVERYONE, NAMESPACE) == []


async def test_the_development_key_makes_tokens_that_are_accepted() -> None:
    key = DevelopmentKey.make()
    token = key.mint(tenants=["acme"], subject="ada", scopes=["*"], seconds=60, now=NOW)
    authenticator = authenticator_of(None, None, DevelopmentKey.read(key.text), clock=lambda: NOW)

    bearer = await authenticator.authenticate({"authorization": f"bearer {token}"})

    assert (bearer.tenant, bearer.subject, bearer.tenants) == ("acme", "ada", ())
    assert bearer.may("manage", "mail")
    assert key.text not in repr(key)
    other = authenticator_of(None, None, DevelopmentKey.make(), clock=lambda: NOW)
    with pytest.raises(UnauthenticatedError):
        await other.authenticate({"authorization": f"Bearer {token}"})
    with pytest.raises(UnauthenticatedError):
        await authenticator_of(None, None, clock=lambda: NOW).bearer(token)


@pytest.mark.parametrize("text", ["", "psk_", "psk_AAAA", "x" * 47, "psk_" + "!" * 43])
def test_what_is_no_development_key_is_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        DevelopmentKey.read(text)

    assert not text.removeprefix("psk_") or text not in str(refused.value)


async def test_an_operator_acts_for_one_of_its_tenants_at_a_time() -> None:
    key = DevelopmentKey.make()
    authenticator = authenticator_of(None, None, key, clock=lambda: NOW)

    async def request(tenants: list[str], tenant: str | None = None) -> Bearer:
        token = key.mint(tenants=tenants, operator=True, subject="ops", scopes=["work"], seconds=60, now=NOW)
        headers = {"authorization": f"Bearer {token}"}
        return await authenticator.authenticate(
            headers if tenant is None else headers | {TENANT_HEADER: tenant}
        )

    assert (await request(["acme", "globex"])).tenants == ("acme", "globex")
    assert (await request(["acme", "globex"])).tenant == EVERYONE
    assert await request(["acme", "globex"], "globex") == Bearer("globex", "ops", check_scopes("", ["work"]))
    assert (await request(["*"], "initech")).tenant == "initech"
    for other in ("initech", "*", "", "acme/x"):
        with pytest.raises(ForbiddenError):
            await request(["acme", "globex"], other)


async def test_a_tenant_can_name_itself_and_nobody_else() -> None:
    bearer = Bearer("acme", "ada", Scopes())

    assert bearer.acting_for("acme") == bearer
    with pytest.raises(ForbiddenError):
        bearer.acting_for("globex")


def test_scopes_allow_verbs_in_queues() -> None:
    scopes = read_scopes(["openid", "read", "enqueue:mail.*", "work:a*b*c", "manage:mail", "write", "x:y"])

    assert scopes.allow("read", "anything")
    assert scopes.allow("read", "*")
    assert scopes.allow("enqueue", "mail.eu")
    assert not scopes.allow("enqueue", "mail")
    assert not scopes.allow("enqueue", "*")
    assert scopes.allow("enqueue")
    assert scopes.allow("work", "a-b-b-c")
    assert not scopes.allow("work", "abc-")
    assert not scopes.allow("work", "ac")
    assert not scopes.allow("manage", "mail2")
    assert not scopes.allow("store")
    assert not Scopes().allow("read")
    assert str(scopes) == "read enqueue:mail.* work:a*b*c manage:mail"


def test_a_star_is_every_verb() -> None:
    scopes = check_scopes("scope", ["*:mail"])

    assert scopes.allow("store", "mail")
    assert not scopes.allow("read", "other")
    with pytest.raises(OptionError, match="scope"):
        check_scopes("scope", ["all"])


FILE = """
audience = "https://queue.example.org"
[[issuers]]
issuer = "https://id.example.org/"
family = "RS"
jwks = "https://id.example.org/keys"
tenants = ["acme", "globex-*"]
[[issuers]]
issuer = "ci"
family = "HS"
jwks = "secret.json"
operators = true
"""


def test_issuers_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "auth.toml"
    file.write_text(FILE)
    auth = read_auth_file(file)

    assert auth.audience == "https://queue.example.org"
    assert [each.family for each in auth.issuers] == [Family.RS, Family.HS]
    assert auth.issuers[0].tenants == ("acme", "globex-*")
    assert auth.issuers[1].jwks == str(tmp_path / "secret.json")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('family = "RS"', 'family = "none"', "family"),
        ('family = "RS"', 'familly = "RS"', "familly"),
        ('"https://id.example.org/keys"', '"http://id.example.org/keys"', "jwks"),
        ('"https://id.example.org/keys"', '"https://ada:secret@id.example.org/keys"', "jwks"),
        ('"https://id.example.org/keys"', '"file:///keys"', "jwks"),
        ('"secret.json"', '"https://id.example.org/secret"', "jwks"),
        ('"ci"', '"https://id.example.org/"', "twice"),
        ('"globex-*"', '"glob ex"', "tenants"),
        ("operators = true", "operators = 1", "operators"),
        ("operators = true", "refresh = 10\nkeep = 5", "keep"),
        ("operators = true", "leeway = 3600", "leeway"),
        ("[[issuers]]", "[[issuer]]", "issuer"),
        ("audience", "=", "auth.toml"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(
    tmp_path: Path, old: str, new: str, named: str
) -> None:
    file = tmp_path / "auth.toml"
    file.write_text(FILE.replace(old, new))

    with pytest.raises(ConfigError, match=named) as refused:
        read_auth_file(file)
    assert "secret@" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"auth\.toml"):
        read_auth_file(tmp_path / "auth.toml")


async def test_a_tenant_has_a_bound_on_its_tokens() -> None:
    """Also where several are made at the same time: rather one too few than one too many."""
    store = MemoryStore()
    tokens = ApiTokens(store)

    async def make(tenant: str) -> ApiToken:
        return (await tokens.make(tenants=[tenant], subject="ci", scopes=["read"]))[1]

    first = await make("acme")
    for number in range(MOST - 1):
        copy = msgspec.structs.replace(first, id=f"t{number}")
        await store.key_value.put_entry(EVERYONE, NAMESPACE, copy.id, msgspec.json.encode(copy))

    with pytest.raises(OptionError, match=f"tokens: found {MOST} of them, wanted at most {MOST}"):
        await make("acme")
    assert len(await tokens.all("acme")) == MOST
    await make("globex")
    await tokens.revoke(first.id)
    await make("acme")
