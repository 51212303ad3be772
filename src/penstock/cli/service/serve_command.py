"""`penstock serve`: serve the queues of many tenants over HTTP."""

import gc
import ipaddress
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.loading import open_store, refuse_memory
from penstock.cli.options import setting
from penstock.cli.service.service_access import development_key, needs_service
from penstock.core.errors import ConfigError
from penstock.stores.private_files import create_private_file
from penstock.stores.protocol import Store
from penstock.telemetry import logs
from penstock.worker.options import MAX_TIME, check_seconds

if TYPE_CHECKING:
    from penstock.service.auth.development import DevelopmentKey

DEFAULT_URL = "sqlite:///penstock.db"


async def serve(
    context: CommandContext,
    host: Annotated[
        str | None, setting("serve.host", "Address or host name to listen on", metavar="HOST")
    ] = None,
    port: Annotated[
        str | None, setting("serve.port", "Port to listen on; 0 picks a free port", metavar="N")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            show_default=False,
            help="Development key that tokens are signed with. Default: a new key for this run, "
            "unless there is --auth-file. [PENSTOCK_AUTH_KEY]",
        ),
    ] = None,
    key_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="File with the development key, such as ./key. No default. [PENSTOCK_AUTH_KEY_FILE]",
        ),
    ] = None,
    auth_file: Annotated[
        str | None,
        setting(
            "serve.auth_file",
            "TOML file with the issuers whose tokens are accepted, such as auth.toml",
            metavar="FILE",
        ),
    ] = None,
    json_values: Annotated[
        str | None,
        setting("serve.json_values", "Maximum number of JSON values in the body of one request", metavar="N"),
    ] = None,
    shutdown_timeout: Annotated[
        str | None,
        setting(
            "serve.shutdown_timeout",
            "Time that open requests have to end when the service is stopped",
            metavar="TIME",
        ),
    ] = None,
    connections: Annotated[
        str | None, setting("serve.connections", "Maximum number of open connections", metavar="N")
    ] = None,
    connections_per_peer: Annotated[
        str | None,
        setting(
            "serve.connections_per_peer",
            "Maximum number of connections of one address before it shows a valid token",
            default="a fifth of --connections",
            metavar="N",
        ),
    ] = None,
    connections_per_tenant: Annotated[
        str | None,
        setting(
            "serve.connections_per_tenant",
            "Maximum number of connections that carry tokens of one tenant",
            default="half of --connections",
            metavar="N",
        ),
    ] = None,
    requests_per_tenant: Annotated[
        str | None,
        setting(
            "serve.requests_per_tenant",
            "Maximum number of concurrent requests of one tenant, without streams and long polls",
            default="a quarter of --connections",
            metavar="N",
        ),
    ] = None,
    streams: Annotated[
        str | None,
        setting(
            "serve.streams",
            "Maximum number of concurrent streams and long polls",
            default="half of --connections",
            metavar="N",
        ),
    ] = None,
    streams_per_tenant: Annotated[
        str | None,
        setting(
            "serve.streams_per_tenant",
            "Maximum number of concurrent streams and long polls of a tenant without a quota for them",
            default="half of --streams",
            metavar="N",
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        setting(
            "serve.sweep", "Time in which every queue gets maintenance once, such as 10m", metavar="TIME"
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        setting("serve.log_level", "Log level: debug, info, warning, error or critical", metavar="LEVEL"),
    ] = None,
    log_json: Annotated[
        bool | None, setting("serve.log_json", "Log one JSON object per line", "--log-json")
    ] = None,
) -> None:
    """Serve the queues of a store (default: sqlite:///penstock.db) over HTTP until stopped.

    Clients authenticate by an API token of `penstock token add`, a JWT of an issuer in --auth-file, or a JWT
    signed with the development key. Without --auth-file and a key, the command makes a key for this run and
    prints the file that has it.
    """
    with needs_service():
        from penstock.service.auth.development import DevelopmentKey
        from penstock.service.descriptors import fitted
        from penstock.service.egress.policy import EgressPolicy
        from penstock.service.full_service import full_service
        from penstock.service.limits import limits_of
        from penstock.service.sealing import SecretSealer
        from penstock.service.server import Server, listen
    serve_settings = context.settings.serve
    logs.configure(json=serve_settings.log_json, level=serve_settings.log_level)
    auth, file = context.settings.auth, serve_settings.auth_file
    known_key, new_key = development_key(key or auth.key, key_file or auth.key_file), None
    if known_key is None and file is None:
        if not _is_loopback(serve_settings.host):
            raise ConfigError(
                f"a key made for one run is accepted on this machine only, and "
                f"{serve_settings.host} is no loopback address: "
                "give --key-file or --auth-file"
            )
        new_key = DevelopmentKey.make()
    egress = context.settings.egress
    service = full_service(
        _store(context),
        key=new_key or known_key,
        auth_file=None if file is None else Path(file),
        egress=EgressPolicy.of(allow=egress.allow, ports=egress.ports, plain=egress.plain),
        limits=fitted(
            limits_of(
                connections=serve_settings.connections,
                connections_per_peer=serve_settings.connections_per_peer,
                connections_per_tenant=serve_settings.connections_per_tenant,
                requests_per_tenant=serve_settings.requests_per_tenant,
                streams=serve_settings.streams,
                streams_per_tenant=serve_settings.streams_per_tenant,
                json_values=serve_settings.json_values,
            )
        ),
        sealer=SecretSealer.of(context.settings.secret_key),
        sweep=check_seconds("--sweep", serve_settings.sweep, 1, MAX_TIME),
        filters=context.filters,
    )
    with (
        listen(serve_settings.host, int(serve_settings.port)) as listening_socket,
        _key_file(new_key) as path,
    ):
        async with service:
            name, number = listening_socket.getsockname()[:2]
            address = f"http://{f'[{name}]' if ':' in name else name}:{number}"
            _print_address(context, address, path)
            # Otherwise a full garbage collection, which one large body can start, visits all modules.
            gc.collect()
            gc.freeze()
            await Server(service, grace=serve_settings.shutdown_timeout).serve([listening_socket])


def _store(context: CommandContext) -> Store:
    if context.settings.url is None and context.app is None:
        return open_store(DEFAULT_URL, filters=context.filters)
    store = context.make_store()
    refuse_memory(store)
    return store


@contextmanager
def _key_file(key: "DevelopmentKey | None") -> Iterator[Path | None]:
    """A file with the key, readable by this user only and deleted after the block; None without a key."""
    if key is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="penstock-serve-") as folder:
        path = Path(folder) / "key"
        create_private_file(path)
        path.write_text(f"{key.text}\n")
        yield path


def _print_address(context: CommandContext, address: str, path: Path | None) -> None:
    document: dict[str, Any] = {"address": address}
    context.out.line(f"serving on {address}")
    if path is not None:
        document["key_file"] = str(path)
        context.out.line(f"development key of this run, readable by this user only: {path}")
        context.out.line(f"make a token with it: penstock token mint --tenant NAME --key-file {path}")
    context.out.document(document)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
