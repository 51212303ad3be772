"""Keys of issuers: published at a url or in a file, rotated, gone for a while, or not to be trusted."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from penstock.core.errors import ConfigError
from penstock.service.auth import fetching
from penstock.service.auth.authenticator import TokenAuthenticator
from penstock.service.auth.issuers import Family
from penstock.service.auth.keys import MOST_KEYS, SET_BYTES, read_key_set
from penstock.service.auth.sources import COOLDOWN, IssuerKeys, IssuerUnavailableError
from penstock.service.errors import UnauthenticatedError
from tests.service.auth.kit import NOW, Signer, issuer, key_set, publishing

OLD, NEW = Signer("old"), Signer("new")
REFRESH, KEEP = 600.0, 3_600.0


class Desk:
    """A door that asks a publisher, and a clock to turn."""

    def __init__(self, place: str) -> None:
        self.now = 1_000.0
        ours = issuer(place, refresh=REFRESH, keep=KEEP)
        self.keys = IssuerKeys(ours, clock=lambda: self.now)
        self.authenticator = TokenAuthenticator([(ours, self.keys)], clock=lambda: NOW)

    async def accepts(self, signer: Signer) -> bool:
        """Whether a token of this key is accepted."""
        try:
            await self.authenticator.bearer(signer.token())
        except UnauthenticatedError:
            return False
        return True

    async def settled(self) -> None:
        """Wait until no question is under way."""
        while self.keys._asking is not None and not self.keys._asking.done():
            await asyncio.wait([self.keys._asking])


async def test_a_new_key_is_accepted_as_soon_as_it_is_published() -> None:
    with publishing() as publisher:
        desk = Desk(publisher.url)
        publisher.answer = key_set(OLD)
        assert await desk.accepts(OLD)
        publisher.answer = key_set(OLD, NEW)
        desk.now += COOLDOWN

        assert await desk.accepts(NEW)
        assert await desk.accepts(OLD)
        assert publisher.asked == 2


async def test_an_old_key_is_refused_once_it_is_gone_from_the_set() -> None:
    with publishing() as publisher:
        desk = Desk(publisher.url)
        publisher.answer = key_set(OLD)
        assert await desk.accepts(OLD)
        publisher.answer = key_set(NEW)
        desk.now += REFRESH
        await desk.accepts(OLD)
        await desk.settled()

        assert not await desk.accepts(OLD)
        assert await desk.accepts(NEW)


async def test_names_of_keys_that_are_made_up_do_not_reach_the_issuer() -> None:
    """But for one question in a while, however many tokens come, at once or one after the other."""
    with publishing() as publisher:
        desk = Desk(publisher.url)
        publisher.answer = key_set(OLD)
        await asyncio.gather(*(desk.accepts(Signer(f"made-up-{n}")) for n in range(20)))
        for n in range(20):
            assert not await desk.accepts(Signer(f"again-{n}"))
        once = publisher.asked
        desk.now += COOLDOWN
        await asyncio.gather(*(desk.accepts(Signer(f"later-{n}")) for n in range(20)))

        assert (once, publisher.asked) == (1, 2)
        assert await desk.accepts(OLD)


async def test_an_outage_is_outlived_for_a_while_and_then_everything_is_refused() -> None:
    with publishing() as publisher:
        desk = Desk(publisher.url)
        publisher.answer = key_set(OLD)
        assert await desk.accepts(OLD)
        publisher.status = 500
        while desk.now < 1_000.0 + KEEP - COOLDOWN:
            desk.now += COOLDOWN * 10
            desk.now = min(desk.now, 1_000.0 + KEEP - 1)
            assert await desk.accepts(OLD)
            await desk.settled()
        desk.now = 1_000.0 + KEEP

        with pytest.raises(IssuerUnavailableError) as refused:
            await desk.accepts(OLD)
        assert int(refused.value.headers["retry-after"]) > 0
        publisher.status = 200
        desk.now += COOLDOWN
        assert await desk.accepts(OLD)


async def test_an_issuer_that_was_never_reached_lets_nobody_in() -> None:
    with publishing() as publisher:
        place = publisher.url
    desk = Desk(place)

    for _ in range(3):
        with pytest.raises(IssuerUnavailableError):
            await desk.accepts(OLD)
        desk.now += COOLDOWN


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": [1]}',
        b'{"keys": []}',
        b'{"keys": ' + b"[" * 20_000,
        b" " * (SET_BYTES + 1),
        key_set(*[OLD.public | {"kid": str(n)} for n in range(MOST_KEYS + 1)]),
        key_set(NEW.public | {"kid": "k"}, OLD.public | {"kid": "k"}),
        key_set(OLD.public | {"d": "AAAA"}),
        key_set(OLD.public | {"x": "AAAA"}),
        key_set(OLD.public | {"crv": "P-384"}),
        key_set(OLD.public | {"use": "enc"}),
        key_set(OLD.public | {"key_ops": ["sign"]}),
        key_set(OLD.public | {"kty": "RSA"}),
        key_set(OLD.public | {"kid": 1}),
        json.dumps({"keys": [{"kty": "oct", "kid": "old", "k": "A" * 60}]}).encode(),
    ],
    ids=range(18),
)
async def test_an_answer_that_cannot_be_trusted_changes_nothing(answer: bytes) -> None:
    with publishing() as publisher:
        desk = Desk(publisher.url)
        publisher.answer = key_set(OLD)
        assert await desk.accepts(OLD)
        publisher.answer = answer
        desk.now += COOLDOWN
        await desk.accepts(NEW)

        assert publisher.asked == 2
        assert await desk.accepts(OLD)


async def test_an_answer_that_leads_elsewhere_is_not_followed() -> None:
    with publishing() as other, publishing() as publisher:
        other.answer = key_set(OLD)
        publisher.status, publisher.headers = 302, {"location": other.url}
        desk = Desk(publisher.url)

        with pytest.raises(IssuerUnavailableError):
            await desk.accepts(OLD)
        assert (publisher.asked, other.asked) == (1, 0)


async def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT", 0.2)

    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
        while await reader.read(1_000):
            """It says no more, until the other side has gone."""
        writer.close()
        gone.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    with pytest.raises((OSError, ConfigError)):
        await fetching.fetch(f"http://127.0.0.1:{port}/keys")
    await gone.wait()
    server.close()
    await server.wait_closed()


async def test_keys_in_a_file_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(OLD))
    desk = Desk(str(file))
    assert await desk.accepts(OLD)
    file.write_bytes(key_set(NEW))
    desk.now += COOLDOWN

    assert await desk.accepts(NEW)
    assert not await desk.accepts(OLD)


async def test_a_door_that_is_closed_asks_no_more() -> None:
    with publishing() as publisher:
        desk = Desk(publisher.url)
        publisher.answer = key_set(OLD)
        await desk.accepts(OLD)
        desk.now += REFRESH
        await desk.accepts(OLD)
        await desk.authenticator.close()

        assert desk.keys._asking is not None
        assert desk.keys._asking.done()


@pytest.mark.parametrize(
    ("alg", "family"),
    [("RS256", Family.RS), ("PS512", Family.PS), ("ES384", Family.ES), ("EdDSA", Family.EDDSA)],
)
async def test_every_family_of_algorithms_can_be_used(alg: str, family: Family) -> None:
    signer = Signer("k", alg)
    ours = issuer(family=family)
    keys = IssuerKeys(
        ours, fetch=_answering(key_set(signer, OLD, Signer("x", "EdDSA").public | {"kid": "y"}))
    )

    bearer = await TokenAuthenticator([(ours, keys)], clock=lambda: NOW).bearer(signer.token())

    assert bearer.tenant == "acme"


def test_a_weak_key_is_refused() -> None:
    weak = rsa.generate_private_key(public_exponent=65_537, key_size=1_024)
    public = {**RSAAlgorithm.to_jwk(weak.public_key(), as_dict=True), "kid": "k"}

    with pytest.raises(ConfigError, match="1024 bits"):
        read_key_set(key_set(public), Family.RS)


def test_a_short_secret_is_refused() -> None:
    def secret(length: int) -> bytes:
        text = base64.urlsafe_b64encode(bytes(length)).decode()
        return key_set({"kty": "oct", "k": text, "kid": "k"})

    with pytest.raises(ConfigError, match="31 bytes"):
        read_key_set(secret(31), Family.HS)
    [key] = read_key_set(secret(48), Family.HS).keys
    assert key.algorithms == {"HS256", "HS384"}
    assert "bytes" not in repr(key)


def _answering(text: bytes) -> Any:
    async def fetch(_: str) -> bytes:
        return text

    return fetch


def test_a_name_that_stands_twice_in_a_set_of_keys_is_refused() -> None:
    """One reader would check signatures with the first key, another with the last."""
    text = key_set(OLD)
    assert read_key_set(text, Family.ES).keys

    with pytest.raises(ConfigError, match="found something else, wanted a JSON object with keys"):
        read_key_set(text.replace(b'"kty"', b'"kty": "RSA", "kty"', 1), Family.ES)
