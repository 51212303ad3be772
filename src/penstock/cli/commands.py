"""All commands, put together."""

from typing import Annotated, Any

import typer

from penstock.cli import (
    dlq,
    events,
    flows,
    jobs,
    limits,
    migrate,
    outbox,
    quarantine,
    schedules,
    spark,
    tenants,
    token,
    webhooks,
)
from penstock.cli.demo import demo
from penstock.cli.desk import GLOBAL, command
from penstock.cli.doctor import doctor
from penstock.cli.enqueue import enqueue
from penstock.cli.output import Output
from penstock.cli.scheduler import scheduler
from penstock.cli.serve import serve
from penstock.cli.worker import worker


def build() -> typer.Typer:
    """The command line."""
    app = typer.Typer(
        name="penstock",
        help="A job queue for Python that can prove it lost nothing.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_everywhere())
    command(app, "worker", prefix="worker", fast=True)(worker)
    command(app, "scheduler", prefix="worker")(scheduler)
    command(app, "serve", prefix="serve", fast=True)(serve)
    command(app, "enqueue")(enqueue)
    app.add_typer(jobs.group, name="jobs")
    app.add_typer(limits.group, name="queues")
    app.add_typer(flows.group, name="flows")
    app.add_typer(schedules.group, name="schedules")
    app.add_typer(dlq.group, name="dlq")
    app.add_typer(quarantine.group, name="quarantine")
    app.add_typer(events.group, name="events")
    app.add_typer(migrate.group, name="migrate")
    app.add_typer(outbox.group, name="outbox")
    app.add_typer(webhooks.group, name="webhooks")
    app.add_typer(token.group, name="token")
    app.add_typer(tenants.group, name="tenants")
    app.add_typer(spark.group, name="spark")
    command(app, "doctor")(doctor)
    command(app, "demo", prefix="demo")(demo)
    return app


def _everywhere() -> Any:
    """Takes the options of all commands where they stand before the command."""
    import inspect

    def remember(context: typer.Context, version: bool = False, **given: Any) -> None:
        if version:
            from importlib.metadata import version as version_of

            out, found = Output(json=bool(given["json"])), version_of("penstock")
            out.document({"version": found})
            out.line(f"penstock {found}")
            raise typer.Exit
        if context.invoked_subcommand is None:
            context.fail("Missing command.")
        context.obj = {name: value for name, value in given.items() if value is not None}

    shown = Annotated[bool, typer.Option("--version", "-V", help="Print the version and exit", is_eager=True)]
    parameters = [
        inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY, annotation=typer.Context),
        inspect.Parameter("version", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=shown),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in GLOBAL.items()
        ),
    ]
    remember.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    remember.__annotations__ = {each.name: each.annotation for each in parameters}
    remember.__doc__ = "A job queue for Python that can prove it lost nothing."
    return remember
