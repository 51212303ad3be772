"""`penstock flows`: show a job with all jobs that it waits for, as a tree, and cancel them."""

from typing import Annotated, Final

import typer
from rich.text import Text
from rich.tree import Tree

from penstock.cli.command_context import CommandContext
from penstock.cli.jobs.flow_tree import FlowTreeNode, flow_node_document, flow_node_text, read_flow, summary
from penstock.cli.jobs.job_commands import Id
from penstock.cli.jobs.job_lookup import find_job
from penstock.cli.output import printable, style_of
from penstock.cli.registration import command, command_group
from penstock.core.job import QueueRef
from penstock.core.outcomes import Applied
from penstock.stores.protocol import Store

group = command_group("Show and cancel flows: jobs that wait for other jobs.")

MAX_CHILDREN: Final = 20
"""Children of one job that are printed one by one; of the others only their states are counted."""


@command(group, "show")
async def show(
    context: CommandContext,
    id: Id,  # noqa: A002 (the word for it)
    all_: Annotated[bool, typer.Option("--all", help="Print every child, however many a job has")] = False,
) -> None:
    """Show a job and all jobs that it waits or waited for, as a tree."""
    async with context.store() as store:
        job = await find_job(context, store, id)
        top = await read_flow(store, job)
        now = await store.clock.now()
    context.out.document(flow_node_document(top, now))
    if context.out.json:
        return
    tree = Tree(_line(top, now), guide_style="dim")
    _add_children(tree, top, now, None if all_ else MAX_CHILDREN)
    context.out.console.print(tree)
    if job.parents:
        context.out.line(f"part of: {', '.join(map(str, job.parents))}")
    nodes = list(top.all())
    context.out.line(f"{len(nodes)} {'job' if len(nodes) == 1 else 'jobs'}: {summary(nodes)}")


@command(group, "cancel")
async def cancel(context: CommandContext, id: Id) -> None:  # noqa: A002 (the word for it)
    """Cancel a job and every live job that it waits for.

    Waiting jobs are cancelled at once; handlers of running jobs are asked to stop.
    """
    async with context.store() as store:
        job = await find_job(context, store, id)
        nodes = list((await read_flow(store, job)).all())
        cancelled, asked = await _cancel(store, job.tenant, nodes)
        missing = [node for node in nodes if node.job is None and not _is_known(node)]
    context.out.document(
        {
            "id": job.id,
            "queue": job.queue,
            "cancelled": cancelled,
            "asked_to_stop": asked,
            "not_there": len(missing),
        }
    )
    stops = f", {asked} asked to stop" if asked else ""
    context.out.line(f"{cancelled} of {len(nodes)} cancelled{stops}")
    if missing:
        context.out.note(
            f"{len(missing)} jobs do not exist: they were deleted, or are not enqueued yet; "
            "in that case run this command again in a moment"
        )


async def _cancel(store: Store, tenant: str, nodes: list[FlowTreeNode]) -> tuple[int, int]:
    """Cancel the jobs, parents first, so that no parent fails because its child was cancelled."""
    cancelled = asked = 0
    for node in nodes:
        if node.job is None or node.job.state.is_ended:
            continue
        (outcome,) = await store.moves.cancel(QueueRef(tenant, node.ref.queue), [node.ref.id])
        if isinstance(outcome, Applied):
            asked += outcome.cancel_requested
            cancelled += not outcome.cancel_requested
    return cancelled, asked


def _line(node: FlowTreeNode, now: int) -> Text:
    text = Text(printable(flow_node_text(node, now)))
    if node.job is not None:
        text.highlight_words([node.job.state], style_of(node.job.state))
    return text


def _add_children(tree: Tree, node: FlowTreeNode, now: int, most: int | None) -> None:
    for child in node.children[:most]:
        branch = tree.add(_line(child, now))
        if not child.is_repeat:
            _add_children(branch, child, now, most)
    rest = [] if most is None else node.children[most:]
    if rest:
        tree.add(Text(f"… and {len(rest)} more: {summary(rest)} (--all shows them)"))


def _is_known(node: FlowTreeNode) -> bool:
    return node.child is not None and node.child.state is not None
