"""`penstock serve`: the queues of many tenants over HTTP."""

import gc
import ipaddress
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.desk import Desk, setting
from penstock.cli.reference import open_store, refuse_memory
from penstock.cli.service import development_key, needs_service
from penstock.core.errors import ConfigError
from penstock.stores.private_files import create_private_file
from penstock.stores.protocol import Store
from penstock.telemetry import logs
from penstock.worker.options import MAX_TIME, check_seconds

if TYPE_CHECKING:
    from penstock.service.auth.development import DevelopmentKey

DEFAULT_URL = "sqlite:///penstock.db"


async def serve(
    desk: Desk,
    host: Annotated[str | None, setting("serve.host", "Where to listen", metavar="HOST")] = None,
    port: Annotated[str | None, setting("serve.port", "0 takes a free one", metavar="N")] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The development key [PENSTOCK_AUTH_KEY]")
    ] = None,
    key_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file with it [PENSTOCK_AUTH_KEY_FILE]")
    ] = None,
    auth_file: Annotated[
        str | None, setting("serve.auth_file", "Issuers whose tokens are good", metavar="FILE")
    ] = None,
    json_values: Annotated[
        str | None, setting("serve.json_values", "Most JSON values in one request's body", metavar="N")
    ] = None,
    shutdown_timeout: Annotated[
        str | None, setting("serve.shutdown_timeout", "How long to answer what runs", metavar="TIME")
    ] = None,
    connections: Annotated[
        str | None, setting("serve.connections", "Connections at a time", metavar="N")
    ] = None,
    connections_per_peer: Annotated[
        str | None,
        setting(
            "serve.connections_per_peer", "Connections of one address without an accepted token", metavar="N"
        ),
    ] = None,
    requests_per_tenant: Annotated[
        str | None,
        setting("serve.requests_per_tenant", "Requests of one tenant handled at a time", metavar="N"),
    ] = None,
    streams: Annotated[
        str | None, setting("serve.streams", "Streams and long polls at a time", metavar="N")
    ] = None,
    streams_per_tenant: Annotated[
        str | None,
        setting("serve.streams_per_tenant", "The same for a tenant without a quota of its own", metavar="N"),
    ] = None,
    sweep: Annotated[
        str | None,
        setting("serve.sweep", "Time in which every queue is visited once for upkeep", metavar="TIME"),
    ] = None,
    log_level: Annotated[
        str | None, setting("serve.log_level", "debug, info, warning, error or critical", metavar="LEVEL")
    ] = None,
    log_json: Annotated[bool | None, setting("serve.log_json", "Log JSON lines", "--log-json")] = None,
) -> None:
    """Serve the queues of a store (sqlite:///penstock.db if none is named) until told to stop.

    Whoever asks shows a token: an API token of `penstock token add`, a JWT of an issuer in the file, or one
    of the development key. Without any of these, a key is made for this run, in a file that is named.
    """
    with needs_service():
        from penstock.service.auth.development import DevelopmentKey
        from penstock.service.descriptors import fitted
        from penstock.service.egress.policy import EgressPolicy
        from penstock.service.limits import limits_of
        from penstock.service.sealing import SecretSealer
        from penstock.service.server import Server, listen
        from penstock.service.serving import full_service
    said = desk.settings.serve
    logs.configure(json=said.log_json, level=said.log_level)
    auth, file = desk.settings.auth, said.auth_file
    known, made = development_key(key or auth.key, key_file or auth.key_file), None
    if known is None and file is None:
        if not _is_loopback(said.host):
            raise ConfigError(
                f"a key that is made for one run is for this machine alone, and {said.host} is not: "
                "give --key-file or --auth-file"
            )
        made = DevelopmentKey.make()
    egress = desk.settings.egress
    service = full_service(
        _store(desk),
        key=made or known,
        auth_file=None if file is None else Path(file),
        egress=EgressPolicy.of(allow=egress.allow, ports=egress.ports, plain=egress.plain),
        limits=fitted(
            limits_of(
                connections=said.connections,
                connections_per_peer=said.connections_per_peer,
                requests_per_tenant=said.requests_per_tenant,
                streams=said.streams,
                streams_per_tenant=said.streams_per_tenant,
                json_values=said.json_values,
            )
        ),
        sealer=SecretSealer.of(desk.settings.secret_key),
        sweep=check_seconds("--sweep", said.sweep, 1, MAX_TIME),
        filters=desk.filters,
    )
    with listen(said.host, int(said.port)) as bound, _kept(made) as path:
        async with service:
            name, number = bound.getsockname()[:2]
            address = f"http://{f'[{name}]' if ':' in name else name}:{number}"
            _tell(desk, address, path)
            # Or a full collection, which the values of one large body can start, walks through all modules.
            gc.collect()
            gc.freeze()
            await Server(service, grace=said.shutdown_timeout).serve([bound])


def _store(desk: Desk) -> Store:
    if desk.settings.url is None and desk.app is None:
        return open_store(DEFAULT_URL, filters=desk.filters)
    store = desk.make_store()
    refuse_memory(store)
    return store


@contextmanager
def _kept(key: "DevelopmentKey | None") -> Iterator[Path | None]:
    """A file that has the key, for this user alone and until the block ends; None without a key."""
    if key is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="penstock-serve-") as folder:
        path = Path(folder) / "key"
        create_private_file(path)
        path.write_text(f"{key.text}\n")
        yield path


def _tell(desk: Desk, address: str, path: Path | None) -> None:
    said: dict[str, Any] = {"address": address}
    desk.out.line(f"serving on {address}")
    if path is not None:
        said["key_file"] = str(path)
        desk.out.line(f"development key of this run, for this user alone: {path}")
        desk.out.line(f"a token for it: penstock token mint --tenant NAME --key-file {path}")
    desk.out.document(said)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
