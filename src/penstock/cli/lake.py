"""`penstock lake`: the tables of a lake. No command but `register` and `audit` starts Spark."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.lake_audit import audit
from penstock.cli.output import local
from penstock.cli.registration import command, command_group
from penstock.cli.spark_run import Master, started
from penstock.core.errors import OptionError
from penstock.settings import seconds

if TYPE_CHECKING:
    from penstock.spark.lake.table import LakeTable

Folder = Annotated[
    str,
    typer.Argument(metavar="FOLDER", help="Folder of the lake: a path, or a URL such as s3a://bucket/lake"),
]
Table = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Only this table: events, attempts or jobs; may be repeated",
        show_default="all tables",
    ),
]
FIGURES: Final = {
    "new events": "events",
    "twice": "duplicates",
    "problems": "problems",
    "gaps": "gaps",
    "lag ms": "lag_ms",
}
"""What is shown of a batch, by the title of its column."""
group = command_group("Audit, list and maintain the Delta tables that `penstock spark run` fills.")

command(group, "audit")(audit)


@command(group, "tables")
async def tables(context: CommandContext, folder: Folder) -> None:
    """List the tables of a lake: version, last batch, rows, files and bytes of each."""
    from penstock.spark import lake

    found = lake.open_lake(folder)
    for table in found.tables:
        context.out.document(_document(table))
    context.out.table(
        ["table", "version", "batch", "rows", "files", "bytes"],
        [tuple(_document(table).values())[:6] for table in found.tables],
        right=frozenset({"version", "batch", "rows", "files", "bytes"}),
    )


@command(group, "history")
async def history(
    context: CommandContext,
    folder: Folder,
    limit: Annotated[int, typer.Option(metavar="N", help="Maximum number of batches", min=1)] = 20,
) -> None:
    """List the batches, newest first, each with the versions of the tables that end with it and its figures.

    The figures are its events, rows that came twice, events that could not be read, gaps, and how many
    milliseconds old its newest event was when it was committed.
    """
    from penstock.spark import lake

    found = lake.history(folder, limit)
    for each in found:
        context.out.document({"batch": each.batch, "at": each.at, **each.versions, "figures": each.figures})
    context.out.table(
        ["batch", "at", *lake.NAMES, *FIGURES],
        [
            (
                each.batch,
                local(each.at),
                *(each.versions[name] for name in lake.NAMES),
                *(each.figures.get(name, "") for name in FIGURES.values()),
            )
            for each in found
        ],
        right=frozenset({"batch", *lake.NAMES, *FIGURES}),
        drop=list(reversed(FIGURES)),
    )


@command(group, "optimize")
async def optimize(
    context: CommandContext,
    folder: Folder,
    table: Table = None,
    target: Annotated[
        int, typer.Option(metavar="MB", help="Maximum size of a joined file, in MiB", min=1)
    ] = 128,
) -> None:
    """Join the small files of the tables, day by day; rows do not change.

    It may run beside `penstock spark run`, which does the same at intervals, and may be stopped at any time.
    """
    from penstock.spark import lake

    done = lake.optimize(folder, table or (), target_bytes=target << 20)
    for each in done:
        context.out.document({"table": each.table, "before": each.before, "after": each.after})
    context.out.table(
        ["table", "files before", "after"],
        [(each.table, each.before, each.after) for each in done],
        right=frozenset({"files before", "after"}),
    )


@command(group, "vacuum")
async def vacuum(
    context: CommandContext,
    folder: Folder,
    table: Table = None,
    keep: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="How long replaced files are kept, in whole hours; longer than any query or batch takes",
        ),
    ] = "24h",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print how many files would be removed")
    ] = False,
) -> None:
    """Remove files that no version within --keep uses, and files that killed tasks left.

    Older versions can then no longer be read.
    """
    hours, rest = divmod(round(seconds("--keep", keep)), 3600)
    if rest:
        raise OptionError("--keep", keep, "whole hours, such as 24h")
    from penstock.spark import lake

    done = lake.vacuum(folder, table or (), keep_hours=hours, dry_run=dry_run)
    for name, files in done.items():
        context.out.document({"table": name, "removed": len(files), "dry_run": dry_run})
    title = "files to remove" if dry_run else "files removed"
    context.out.table(
        ["table", title], [(name, len(files)) for name, files in done.items()], right=frozenset({title})
    )


@command(group, "register")
async def register(
    context: CommandContext,
    folder: Folder,
    database: Annotated[
        str, typer.Option(metavar="NAME", help="Database of the views; it is created if needed")
    ] = "penstock",
    master: Master = "local[*]",
) -> None:
    """Register the tables as views in the Hive metastore that Spark is configured for.

    A query of a view reads the newest version of its table.
    """
    from penstock.spark import lake

    # Before a Java is started.
    lake.open_lake(folder)
    with started("penstock lake", master, **{"spark.sql.catalogImplementation": "hive"}) as spark:
        from penstock.spark.lake.registering import register as register_views

        names = register_views(spark, folder, database)
    for name in names:
        context.out.document({"view": name})
        context.out.line(name)


def _document(table: "LakeTable") -> dict[str, object]:
    files = table.files()
    return {
        "table": table.shape.name,
        "version": table.version,
        "batch": table.batch,
        "rows": sum(file.rows for file in files),
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "address": table.where,
    }
