"""`penstock token`: JWTs for development, and API tokens, of which the store has the hash."""

import sys
import time
from typing import Annotated, Any

import msgspec
import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.options import setting
from penstock.cli.output import local, utc, without_none
from penstock.cli.registration import command, command_group
from penstock.cli.service.service_access import development_key, needs_service, operator_name
from penstock.core.errors import ConfigError, OptionError
from penstock.settings import seconds

group = command_group("Make, inspect and revoke tokens for the HTTP service.")

ScopeWords = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="Scope that the token has, such as read, enqueue:mail or work:mail.*; may be repeated",
        show_default="*, which allows everything",
    ),
]
Subject = Annotated[str, typer.Option(metavar="NAME", help="Name of the holder, which is logged, such as ci")]
Tenants = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…",
        help="Make a token of an operator of these tenants, such as acme,globex, or * for all",
        show_default="a token of one tenant, --tenant",
    ),
]
KeyFlag = Annotated[
    str | None, setting("auth.key", "Development key that JWTs are signed with", metavar="KEY")
]
KeyFileFlag = Annotated[
    str | None, setting("auth.key_file", "File with the development key, such as ./key", metavar="FILE")
]


@command(group, "mint", prefix="auth")
async def mint(
    context: CommandContext,
    key: KeyFlag = None,
    key_file: KeyFileFlag = None,
    scope: ScopeWords = None,
    subject: Subject = "developer",
    lifetime: Annotated[str, typer.Option(metavar="TIME", help="How long the token is valid")] = "1h",
    tenants: Tenants = None,
    audience: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Audience of the token", show_default="penstock")
    ] = None,
) -> None:
    """Make a JWT for a tenant (--tenant) with the development key of `penstock serve`."""
    with needs_service():
        from penstock.service.auth.issuers import AUDIENCE

        known = development_key(context.settings.auth.key, context.settings.auth.key_file)
    if known is None:
        raise ConfigError("no development key is named: give --key-file or set PENSTOCK_AUTH_KEY")
    token = known.mint(
        tenants=_names(context, tenants),
        operator=tenants is not None,
        subject=subject,
        scopes=scope or ["*"],
        seconds=seconds("--lifetime", lifetime),
        now=time.time(),
        audience=audience or AUDIENCE,
    )
    context.out.document({"token": token})
    context.out.line(token)


@command(group, "inspect", prefix="auth")
async def inspect(
    context: CommandContext,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="JWT, or - to read it from standard input")],
    key: KeyFlag = None,
    key_file: KeyFileFlag = None,
) -> None:
    """Print the claims of a JWT; with the development key also whether it is valid (exit code 1 if not)."""
    with needs_service():
        from penstock.service.auth.authenticator import authenticator_of
        from penstock.service.auth.strict import read_token
        from penstock.service.errors import ServiceError

        known = development_key(context.settings.auth.key, context.settings.auth.key_file)
    text = sys.stdin.readline().strip() if token == "-" else token  # noqa: S105 (the usual sign for stdin)
    jwt = read_token(text)
    why: str | None = None
    if known is not None:
        try:
            await authenticator_of(None, None, known).bearer(text)
        except ServiceError as error:
            why = str(error)
    verdict = None if known is None else why or "accepted"
    context.out.document(without_none(alg=jwt.alg, kid=jwt.kid, claims=jwt.claims, verdict=verdict))
    context.out.fields(
        [
            ("alg", jwt.alg),
            ("kid", jwt.kid),
            *((name, _claim_text(name, value)) for name, value in jwt.claims.items()),
            ("verdict", verdict or "not checked: only the key of its issuer can verify it"),
        ]
    )
    if why is not None:
        raise typer.Exit(1)


@command(group, "add")
async def add(
    context: CommandContext,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of the holder, which is logged, such as ci", show_default=False
        ),
    ],
    scope: ScopeWords = None,
    lifetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long the token is valid, such as 30d",
            show_default="until it is revoked",
        ),
    ] = None,
    tenants: Tenants = None,
) -> None:
    """Make an API token for a tenant (--tenant) in the store (--url), and print it: it is not shown again."""
    from penstock.service.auth.api_tokens import ApiTokens
    from penstock.service.tenants.audit import Audit

    async with context.store(may_be_new=True) as store:
        text, made = await ApiTokens(store).make(
            tenants=_names(context, tenants),
            operator=tenants is not None,
            subject=subject,
            scopes=scope or ["*"],
            seconds=None if lifetime is None else seconds("--lifetime", lifetime),
        )
        await Audit(store).note(
            who=operator_name(),
            what="token.add",
            on=made.id,
            detail=f"{subject} of {_tenants_text(made)}: {made.scopes}",
        )
    context.out.document({"token": text, "id": made.id})
    context.out.line(text)
    context.out.note("Keep the token in a safe place: the store has only its hash.")


@command(group, "list")
async def list_tokens(context: CommandContext) -> None:
    """List the API tokens of a tenant (--tenant), or of all tenants."""
    from penstock.service.auth.api_tokens import ApiTokens

    async with context.store() as store:
        found = await ApiTokens(store).all(context.tenant if context.settings.tenant else None)
        now = await store.clock.now()
    context.out.documents(map(_token_document, found))
    context.out.table(
        ["id", "for", "tenant", "made", "expires", "scopes"],
        (
            (
                each.id,
                each.subject,
                _tenants_text(each),
                context.out.time(each.made_at, now),
                context.out.time(each.expires_at, now) or "never",
                each.scopes,
            )
            for each in found
        ),
        drop=["made"],
    )


@command(group, "revoke")
async def revoke(
    context: CommandContext,
    id: Annotated[  # noqa: A002 (the word for it)
        str, typer.Argument(metavar="ID", help="Id of the token, as token list prints it", show_default=False)
    ],
) -> None:
    """Revoke an API token. Services refuse it within seconds."""
    from penstock.service.auth.api_tokens import ApiTokens
    from penstock.service.tenants.audit import Audit

    async with context.store() as store:
        if not await ApiTokens(store).revoke(id):
            raise OptionError("ID", id, "an id that `penstock token list` prints")
        await Audit(store).note(who=operator_name(), what="token.revoke", on=id)
    context.out.document({"id": id, "revoked": True})
    context.out.line(f"revoked token {id}")


def _names(context: CommandContext, tenants: str | None) -> list[str]:
    if tenants is None:
        return [context.tenant]
    return [name.strip() for name in tenants.split(",") if name.strip()]


def _tenants_text(token: Any) -> str:
    return ", ".join(token.tenants) or str(token.tenant)


def _claim_text(name: str, value: object) -> str:
    if name in ("iat", "exp", "nbf") and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value} ({local(round(value * 1000))})"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _token_document(token: Any) -> dict[str, Any]:
    return without_none(
        id=token.id,
        subject=token.subject,
        tenant=None if token.tenants else token.tenant,
        tenants=list(token.tenants) or None,
        scopes=token.scopes,
        made_at=utc(token.made_at),
        expires_at=utc(token.expires_at),
    )
