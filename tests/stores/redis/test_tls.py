"""TLS: whom the store believes, and how it says who it is itself."""

import ssl
from pathlib import Path

import pytest
import trustme

from penstock.core.errors import ConfigError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.stores.redis import RedisStore
from penstock.stores.values import Topic
from penstock.testing.conformance.arrange import claim_one, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.proxy import proxied
from tests.kit.waiting import PATIENCE


class Papers:
    """An authority, its certificate for one name, and one for a client."""

    def __init__(self, folder: Path, name: str) -> None:
        self._authority = trustme.CA()
        self._server = self._authority.issue_cert(name)
        self.ca, self.cert, self.key = (folder / f"{each}.pem" for each in ("ca", "cert", "key"))
        self._authority.cert_pem.write_to_path(self.ca)
        client = self._authority.issue_cert("client@example.org")
        client.cert_chain_pems[0].write_to_path(self.cert)
        client.private_key_pem.write_to_path(self.key)

    def context(self, *, asks: bool = False) -> ssl.SSLContext:
        """What the server's side needs; with `asks`, clients have to show a certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server.configure_cert(context)
        if asks:
            self._authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path, "127.0.0.1")


async def test_a_server_with_the_right_certificate_is_used(
    server: valkey.Server, papers: Papers, queue: QueueRef
) -> None:
    """For calls and for subscriptions."""
    async with proxied(server.port, papers.context()) as proxy:
        url = f"rediss://127.0.0.1:{proxy.port}/0?ca={papers.ca}"
        async with (
            opened(RedisStore(url)) as store,
            store.notifier.subscribe(queue, Topic.READY) as subscription,
        ):
            await enqueue(store, queue, [new_job("a")])

            assert await subscription.wait(PATIENCE)
            assert (await claim_one(store, queue)).id == "a"


async def test_a_port_without_tls_is_told_with_what_was_tried(server: valkey.Server) -> None:
    """It waits for more of what it does not understand, and says nothing."""
    url = server.url.replace("redis://", "rediss://")

    with pytest.raises(StoreUnavailableError, match="TLS was tried"):
        await RedisStore(f"{url}?connect_timeout=300ms").open()


async def test_a_certificate_of_an_unknown_authority_is_refused(
    server: valkey.Server, papers: Papers
) -> None:
    """It will not become known by waiting."""
    async with proxied(server.port, papers.context()) as proxy:
        with pytest.raises(ConfigError, match="certificate that is not accepted"):
            await RedisStore(f"rediss://127.0.0.1:{proxy.port}/0").open()


async def test_a_certificate_for_another_name_is_refused_unless_names_are_not_checked(
    server: valkey.Server, tmp_path: Path
) -> None:
    """The authority alone is not enough."""
    papers = Papers(tmp_path, "elsewhere.example.org")
    async with proxied(server.port, papers.context()) as proxy:
        url = f"rediss://127.0.0.1:{proxy.port}/0?ca={papers.ca}"
        with pytest.raises(ConfigError, match="certificate that is not accepted"):
            await RedisStore(url).open()
        async with opened(RedisStore(f"{url}&check_hostname=false")) as store:
            assert await store.clock.now() > 0


async def test_a_server_that_wants_a_certificate_gets_it(server: valkey.Server, papers: Papers) -> None:
    """And lets nobody in without."""
    async with proxied(server.port, papers.context(asks=True)) as proxy:
        url = f"rediss://127.0.0.1:{proxy.port}/0?ca={papers.ca}"
        with pytest.raises(StoreUnavailableError):
            await RedisStore(url).open()
        async with opened(RedisStore(f"{url}&cert={papers.cert}&key={papers.key}")) as store:
            assert await store.clock.now() > 0


async def test_a_plain_url_to_a_server_with_tls_fails_at_once(server: valkey.Server, papers: Papers) -> None:
    """Nothing is sent in the clear twice."""
    async with proxied(server.port, papers.context()) as proxy:
        with pytest.raises(StoreUnavailableError):
            await RedisStore(proxy.url).open()
