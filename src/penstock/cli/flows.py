"""`penstock flows`: a job with everything it waits for, as a tree."""

from typing import Annotated, Final

import typer
from rich.text import Text
from rich.tree import Tree

from penstock.cli.address import find_job
from penstock.cli.desk import Desk, command
from penstock.cli.family import Member, family_of, member_document, member_text, summary
from penstock.cli.jobs import Id
from penstock.cli.output import printable
from penstock.core.job import QueueRef
from penstock.core.outcomes import Applied
from penstock.stores.protocol import Store

group = typer.Typer(help="Look at jobs that wait for jobs, and cancel them all.", no_args_is_help=True)

SHOWN: Final = 20
"""Children of one job that are shown before the rest is summed up."""


@command(group, "show")
async def show(
    desk: Desk,
    id: Id,  # noqa: A002 (the word for it)
    all_: Annotated[bool, typer.Option("--all", help="Show every child, however many there are")] = False,
) -> None:
    """Show a job and what it waits or waited for, down the graph."""
    async with desk.store() as store:
        job = await find_job(desk, store, id)
        top = await family_of(store, job)
        now = await store.now()
    desk.out.document(member_document(top, now))
    if desk.out.json:
        return
    tree = Tree(Text(printable(member_text(top, now))), guide_style="dim")
    _grow(tree, top, now, None if all_ else SHOWN)
    desk.out.console.print(tree)
    if job.parents:
        desk.out.line(f"part of: {', '.join(map(str, job.parents))}")
    members = list(top.all())
    desk.out.line(f"{len(members)} {'job' if len(members) == 1 else 'jobs'}: {summary(members)}")


@command(group, "cancel")
async def cancel(desk: Desk, id: Id) -> None:  # noqa: A002 (the word for it)
    """Cancel a job and every live job it waits for: what waits is taken back, what runs is asked to stop."""
    async with desk.store() as store:
        job = await find_job(desk, store, id)
        members = list((await family_of(store, job)).all())
        cancelled, asked = await _cancel(store, job.tenant, members)
        missing = [member for member in members if member.job is None and not _is_known(member)]
    desk.out.document(
        {
            "id": job.id,
            "queue": job.queue,
            "cancelled": cancelled,
            "asked_to_stop": asked,
            "not_there": len(missing),
        }
    )
    stops = f", {asked} asked to stop" if asked else ""
    desk.out.line(f"{cancelled} of {len(members)} cancelled{stops}")
    if missing:
        desk.out.note(
            f"{len(missing)} are not there: deleted, or still on their way; then run this again in a moment"
        )


async def _cancel(store: Store, tenant: str, members: list[Member]) -> tuple[int, int]:
    """Parents first, so that none of them fails over the cancel of its child."""
    cancelled = asked = 0
    for member in members:
        if member.job is None or member.job.state.is_ended:
            continue
        (outcome,) = await store.cancel(QueueRef(tenant, member.ref.queue), [member.ref.id])
        if isinstance(outcome, Applied):
            asked += outcome.cancel_requested
            cancelled += not outcome.cancel_requested
    return cancelled, asked


def _grow(tree: Tree, member: Member, now: int, most: int | None) -> None:
    for child in member.children[:most]:
        branch = tree.add(Text(printable(member_text(child, now))))
        if not child.is_repeat:
            _grow(branch, child, now, most)
    rest = [] if most is None else member.children[most:]
    if rest:
        tree.add(Text(f"… and {len(rest)} more: {summary(rest)} (--all shows them)"))


def _is_known(member: Member) -> bool:
    return member.child is not None and member.child.state is not None
