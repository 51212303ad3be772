"""`penstock token`: tokens for development, and API tokens that the store knows by their hash."""

import sys
import time
from typing import Annotated, Any

import msgspec
import typer

from penstock.cli.desk import Desk, command, setting
from penstock.cli.output import local, utc, without_none
from penstock.cli.service import development_key, needs_service, who
from penstock.core.errors import ConfigError, OptionError
from penstock.settings import seconds

group = typer.Typer(help="Make, inspect and revoke tokens for the HTTP service.", no_args_is_help=True)

ScopeWords = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="What it allows, such as read, enqueue:mail or work:mail.*; may be given many times",
        show_default="*",
    ),
]
Subject = Annotated[str, typer.Option(metavar="NAME", help="Who it is for; stands in logs")]
Tenants = Annotated[
    str | None,
    typer.Option(metavar="A,B,…", help="For an operator of these tenants, or of all (*)", show_default=False),
]
KeyFlag = Annotated[str | None, setting("auth.key", "The development key", metavar="KEY")]
KeyFileFlag = Annotated[str | None, setting("auth.key_file", "A file with it", metavar="FILE")]


@command(group, "mint", prefix="auth")
async def mint(
    desk: Desk,
    key: KeyFlag = None,
    key_file: KeyFileFlag = None,
    scope: ScopeWords = None,
    subject: Subject = "developer",
    lifetime: Annotated[str, typer.Option(metavar="TIME", help="How long it is good")] = "1h",
    tenants: Tenants = None,
    audience: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Whom it is shown to", show_default="penstock")
    ] = None,
) -> None:
    """Make a JWT for a tenant (--tenant) with the development key of `penstock serve`."""
    with needs_service():
        from penstock.service.auth.issuers import AUDIENCE

        known = development_key(desk.settings.auth.key, desk.settings.auth.key_file)
    if known is None:
        raise ConfigError("no development key is named: give --key-file or set PENSTOCK_AUTH_KEY")
    token = known.mint(
        tenants=_names(desk, tenants),
        operator=tenants is not None,
        subject=subject,
        scopes=scope or ["*"],
        seconds=seconds("--lifetime", lifetime),
        now=time.time(),
        audience=audience or AUDIENCE,
    )
    desk.out.document({"token": token})
    desk.out.line(token)


@command(group, "inspect", prefix="auth")
async def inspect(
    desk: Desk,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="A JWT, or - to read it from standard input")],
    key: KeyFlag = None,
    key_file: KeyFileFlag = None,
) -> None:
    """Show what a JWT says, and with the development key whether it would be accepted; exit code 1 if not."""
    with needs_service():
        from penstock.service.auth.door import door_of
        from penstock.service.auth.strict import read_token
        from penstock.service.errors import ServiceError

        known = development_key(desk.settings.auth.key, desk.settings.auth.key_file)
    text = sys.stdin.readline().strip() if token == "-" else token  # noqa: S105 (the usual sign for stdin)
    told = read_token(text)
    why: str | None = None
    if known is not None:
        try:
            await door_of(None, None, known).bearer(text)
        except ServiceError as error:
            why = str(error)
    verdict = None if known is None else why or "accepted"
    desk.out.document(without_none(alg=told.alg, kid=told.kid, claims=told.claims, verdict=verdict))
    desk.out.fields(
        [
            ("alg", told.alg),
            ("kid", told.kid),
            *((name, _shown(name, value)) for name, value in told.claims.items()),
            ("verdict", verdict or "not checked: only its issuer's key can tell whether it is true"),
        ]
    )
    if why is not None:
        raise typer.Exit(1)


@command(group, "add")
async def add(
    desk: Desk,
    subject: Annotated[
        str, typer.Argument(metavar="NAME", help="Who it is for; stands in logs", show_default=False)
    ],
    scope: ScopeWords = None,
    lifetime: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is good", show_default="until revoked")
    ] = None,
    tenants: Tenants = None,
) -> None:
    """Make an API token for a tenant (--tenant) in the store (--url). It is shown this once."""
    from penstock.service.auth.api_tokens import ApiTokens
    from penstock.service.tenants.audit import Audit

    async with desk.store(may_be_new=True) as store:
        text, made = await ApiTokens(store).make(
            tenants=_names(desk, tenants),
            operator=tenants is not None,
            subject=subject,
            scopes=scope or ["*"],
            seconds=None if lifetime is None else seconds("--lifetime", lifetime),
        )
        await Audit(store).note(
            who=who(), what="token.add", on=made.id, detail=f"{subject} of {_whose(made)}: {made.scopes}"
        )
    desk.out.document({"token": text, "id": made.id})
    desk.out.line(text)
    desk.out.note("Keep it well: the store has only its hash.")


@command(group, "list")
async def list_tokens(desk: Desk) -> None:
    """List the API tokens of a tenant (--tenant), or of all."""
    from penstock.service.auth.api_tokens import ApiTokens

    async with desk.store() as store:
        found = await ApiTokens(store).all(desk.tenant if desk.settings.tenant else None)
    desk.out.document({"tokens": [_document(each) for each in found]})
    desk.out.table(
        ["id", "for", "tenant", "made", "expires", "scopes"],
        (
            (
                each.id,
                each.subject,
                _whose(each),
                local(each.made_at),
                local(each.expires_at) or "never",
                each.scopes,
            )
            for each in found
        ),
        drop=["made"],
    )


@command(group, "revoke")
async def revoke(
    desk: Desk,
    id: Annotated[str, typer.Argument(metavar="ID", help="As `token list` shows it", show_default=False)],  # noqa: A002 (the word for it)
) -> None:
    """Accept an API token no more. Services notice within seconds."""
    from penstock.service.auth.api_tokens import ApiTokens
    from penstock.service.tenants.audit import Audit

    async with desk.store() as store:
        if not await ApiTokens(store).revoke(id):
            raise OptionError("ID", id, "one of those that `penstock token list` shows")
        await Audit(store).note(who=who(), what="token.revoke", on=id)
    desk.out.document({"id": id, "revoked": True})
    desk.out.line(f"revoked token {id}")


def _names(desk: Desk, tenants: str | None) -> list[str]:
    if tenants is None:
        return [desk.tenant]
    return [name.strip() for name in tenants.split(",") if name.strip()]


def _whose(token: Any) -> str:
    return ", ".join(token.tenants) or str(token.tenant)


def _shown(name: str, value: object) -> str:
    if name in ("iat", "exp", "nbf") and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value} ({local(round(value * 1000))})"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _document(token: Any) -> dict[str, Any]:
    return without_none(
        id=token.id,
        subject=token.subject,
        tenant=None if token.tenants else token.tenant,
        tenants=list(token.tenants) or None,
        scopes=token.scopes,
        made_at=utc(token.made_at),
        expires_at=utc(token.expires_at),
    )
