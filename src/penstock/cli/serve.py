"""`penstock serve`: the queues of many tenants over HTTP."""

import gc
import ipaddress
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.desk import Desk, setting
from penstock.cli.reference import open_store, refuse_memory
from penstock.cli.service import needs_service
from penstock.core.errors import ConfigError
from penstock.stores.protocol import Store
from penstock.telemetry import logs

DEFAULT_URL = "sqlite:///penstock.db"


async def serve(
    desk: Desk,
    host: Annotated[str | None, setting("serve.host", "Where to listen", metavar="HOST")] = None,
    port: Annotated[str | None, setting("serve.port", "0 takes a free one", metavar="N")] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The development key [PENSTOCK_AUTH_KEY]")
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
    log_level: Annotated[
        str | None, setting("serve.log_level", "debug, info, warning, error or critical", metavar="LEVEL")
    ] = None,
    log_json: Annotated[bool | None, setting("serve.log_json", "Log JSON lines", "--log-json")] = None,
) -> None:
    """Serve the queues of a store (sqlite:///penstock.db if none is named) until told to stop.

    Whoever asks shows a token: an API token of `penstock token add`, a JWT of an issuer in the file, or one
    of the development key. Without a file or a key, a key is made for this run, and printed.
    """
    with needs_service():
        from penstock.service.auth.development import DevelopmentKey
        from penstock.service.egress.policy import EgressPolicy
        from penstock.service.limits import Limits
        from penstock.service.server import Server, listen
        from penstock.service.serving import full_service
    said = desk.settings.serve
    logs.configure(json=said.log_json, level=said.log_level)
    key_text, file = key or desk.settings.auth.key, said.auth_file
    made = None
    if key_text is None and file is None:
        if not _is_loopback(said.host):
            raise ConfigError(
                f"a key that is made for one run is for this machine alone, and {said.host} is not: "
                "give --key or --auth-file"
            )
        made = DevelopmentKey.make()
    egress = desk.settings.egress
    service = full_service(
        _store(desk),
        key=made or (None if key_text is None else DevelopmentKey.read(key_text)),
        auth_file=None if file is None else Path(file),
        egress=EgressPolicy.of(allow=egress.allow, ports=egress.ports, plain=egress.plain),
        limits=Limits(json_values=said.json_values),
    )
    with listen(said.host, int(said.port)) as bound:
        async with service:
            name, number = bound.getsockname()[:2]
            address = f"http://{f'[{name}]' if ':' in name else name}:{number}"
            _tell(desk, address, None if made is None else made.text)
            # Or a full collection, which the values of one large body can start, walks through all modules.
            gc.collect()
            gc.freeze()
            await Server(service, grace=said.shutdown_timeout).serve([bound])


def _store(desk: Desk) -> Store:
    if desk.settings.url is None and desk.app is None:
        return open_store(DEFAULT_URL)
    store = desk.make_store()
    refuse_memory(store)
    return store


def _tell(desk: Desk, address: str, key: str | None) -> None:
    said: dict[str, Any] = {"address": address}
    desk.out.line(f"serving on {address}")
    if key is not None:
        said["key"] = key
        desk.out.line(f"development key of this run: {key}")
        desk.out.line(f"a token for it: penstock token mint --tenant NAME --key {key}")
    desk.out.document(said)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
