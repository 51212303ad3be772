"""`token mint|inspect|add|list|revoke`."""

import asyncio
import io

import pytest

from penstock.service.auth.api_tokens import ApiTokens
from penstock.service.auth.authenticator import authenticator_of
from penstock.service.auth.development import DevelopmentKey
from penstock.service.tenants.audit import Audit
from penstock.testing.conformance.parts import Part
from tests.cli.conftest import Shell
from tests.conformance.having import served

KEY = DevelopmentKey.make()


def test_a_minted_token_is_accepted_by_the_key(shell: Shell) -> None:
    token = shell.json("token", "mint", "--key", KEY.text, "--tenant", "acme", "--scope", "read:mail")[
        "token"
    ]
    bearer = asyncio.run(authenticator_of(None, None, KEY).bearer(token))

    assert (bearer.tenant, bearer.subject, str(bearer.scopes)) == ("acme", "developer", "read:mail")


def test_an_operator_is_minted_with_its_tenants(shell: Shell) -> None:
    token = shell.json("token", "mint", "--key", KEY.text, "--tenants", "acme, globex", "--subject", "ops")[
        "token"
    ]

    assert asyncio.run(authenticator_of(None, None, KEY).bearer(token)).tenants == ("acme", "globex")


def test_a_key_can_come_from_the_environment(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell("token", "mint") == 2
    assert "PENSTOCK_AUTH_KEY" in shell.err
    monkeypatch.setenv("PENSTOCK_AUTH_KEY", KEY.text)

    assert shell("token", "mint") == 0
    assert shell.out.count(".") == 2


def test_a_token_is_inspected_and_judged(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell("token", "mint", "--key", KEY.text, "--tenant", "acme", "--lifetime", "10m") == 0
    token = shell.out.strip()
    seen = shell.json("token", "inspect", token)

    assert (seen["alg"], seen["claims"]["tid"], "verdict" in seen) == ("HS256", "acme", False)
    assert seen["claims"]["exp"] - seen["claims"]["iat"] == 600
    assert shell.json("token", "inspect", token, "--key", KEY.text)["verdict"] == "accepted"
    other = shell.json("token", "inspect", token, "--key", DevelopmentKey.make().text, code=1)
    assert "signature" in other["verdict"]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{token}\n"))
    assert shell("token", "inspect", "-") == 0
    assert "not checked" in shell.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mint", "--key", "psk_secret"), "development key"),
        (
            ("mint", "--key-file", "nowhere"),
            "--key-file: found 'nowhere', wanted a file with a development key",
        ),
        (("mint", "--key", KEY.text, "--scope", "write"), "scope"),
        (("mint", "--key", KEY.text, "--lifetime", "0"), "lifetime"),
        (("mint", "--key", KEY.text, "--lifetime", "soon"), "--lifetime"),
        (("mint", "--key", KEY.text, "--tenants", ","), "tenant"),
        (("mint", "--key", KEY.text, "--tenants", "a/b"), "tenant"),
        (("inspect", "x.y"), "three parts"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    assert shell("token", *arguments) > 0
    assert said in shell.err
    assert shell.err.count("\n") == 1
    assert KEY.text not in shell.err
    assert "psk_secret" not in shell.err


@served(Part.KEY_VALUE, only_shared=True)
def test_an_api_token_is_added_listed_and_revoked(shell: Shell) -> None:
    made = shell.json(
        "token", "add", "ci", "--tenant", "acme", "--scope", "enqueue:mail", "--lifetime", "30d"
    )
    bearer = shell.store(lambda store: ApiTokens(store).bearer(made["token"]))
    [listed] = shell.json_lines("token", "list", "--tenant", "acme")

    assert (bearer.tenant, bearer.subject) == ("acme", "ci")
    assert (listed["id"], listed["scopes"]) == (made["id"], "enqueue:mail")
    assert made["token"] not in str(listed)
    assert "expires_at" in listed
    assert shell.json_lines("token", "list", "--tenant", "globex") == []
    assert shell("token", "revoke", made["id"]) == 0
    assert shell.json_lines("token", "list") == []
    assert shell("token", "revoke", made["id"]) == 2
    entries = shell.store(lambda store: Audit(store).entries())
    assert [act.what for act in entries] == ["token.revoke", "token.add"]
    assert not any(made["token"] in act.detail for act in entries)
