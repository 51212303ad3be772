"""The whole command line, put together from its groups of commands."""

import inspect
from typing import Annotated, Any

import typer

from penstock.cli import lake, schedule_commands, spark
from penstock.cli.demo_command import demo
from penstock.cli.doctor.doctor_command import doctor
from penstock.cli.events import event_commands
from penstock.cli.jobs import dead_letter_commands, flow_commands, job_commands
from penstock.cli.jobs.enqueue_command import enqueue
from penstock.cli.options import GLOBAL
from penstock.cli.output import Output
from penstock.cli.queues import limit_commands, quarantine_commands
from penstock.cli.registration import CommandGroup, command
from penstock.cli.scheduler_command import scheduler
from penstock.cli.service import tenant_commands, token_commands, webhook_commands
from penstock.cli.service.serve_command import serve
from penstock.cli.stats_command import stats
from penstock.cli.stores import migrate_commands, outbox_commands
from penstock.cli.worker_command import worker
from penstock.cli.workers import worker_commands


def build() -> typer.Typer:
    """The command line with all its commands."""
    app = typer.Typer(
        name="penstock",
        cls=CommandGroup,
        help="A job queue for Python that can prove it lost nothing.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_global_options_callback())
    command(app, "worker", prefix="worker", fast=True)(worker)
    command(app, "scheduler", prefix="worker")(scheduler)
    command(app, "serve", prefix="serve", fast=True)(serve)
    command(app, "enqueue")(enqueue)
    app.add_typer(worker_commands.group, name="workers")
    app.add_typer(job_commands.group, name="jobs")
    app.add_typer(limit_commands.group, name="queues")
    app.add_typer(flow_commands.group, name="flows")
    app.add_typer(schedule_commands.group, name="schedules")
    app.add_typer(dead_letter_commands.group, name="dlq")
    app.add_typer(quarantine_commands.group, name="quarantine")
    app.add_typer(event_commands.group, name="events")
    app.add_typer(migrate_commands.group, name="migrate")
    app.add_typer(outbox_commands.group, name="outbox")
    app.add_typer(webhook_commands.group, name="webhooks")
    app.add_typer(token_commands.group, name="token")
    app.add_typer(tenant_commands.group, name="tenants")
    app.add_typer(spark.group, name="spark")
    app.add_typer(lake.group, name="lake")
    command(app, "stats")(stats)
    command(app, "doctor")(doctor)
    command(app, "demo", prefix="demo")(demo)
    return app


def _global_options_callback() -> Any:
    """The callback that keeps the global options which stand before the command, for the command."""

    def keep_options(context: typer.Context, version: bool = False, **given: Any) -> None:
        if version:
            from importlib.metadata import version as version_of

            out, found = Output(json=bool(given["json"])), version_of("penstock")
            out.document({"version": found})
            out.line(f"penstock {found}")
            raise typer.Exit
        if context.invoked_subcommand is None:
            context.fail("Missing command.")
        context.obj = {name: value for name, value in given.items() if value is not None}

    version_option = Annotated[
        bool, typer.Option("--version", "-V", help="Print the version and exit.", is_eager=True)
    ]
    parameters = [
        inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY, annotation=typer.Context),
        inspect.Parameter(
            "version", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=version_option
        ),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in GLOBAL.items()
        ),
    ]
    keep_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    keep_options.__annotations__ = {each.name: each.annotation for each in parameters}
    keep_options.__doc__ = "A job queue for Python that can prove it lost nothing."
    return keep_options
