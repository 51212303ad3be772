"""Finding a job by its id as people write it."""

from collections.abc import Sequence

from penstock.cli.command_context import CommandContext
from penstock.core.errors import JobNotFoundError, OptionError
from penstock.core.ids import queue_number
from penstock.core.job import Job, QueueRef
from penstock.core.names import check_name
from penstock.stores.protocol import Store


async def find_job(context: CommandContext, store: Store, text: str) -> Job:
    """The job with this `id` or `queue/id`.

    A generated id contains the number of its queue; any other id is searched in every queue of the tenant.
    """
    queue, slash, job = text.rpartition("/")
    check_name("job id", job)
    if slash:
        refs: Sequence[QueueRef] = [(await context.queue(store, queue)).queue]
    else:
        number = queue_number(job)
        infos = await store.queues.list_queues(context.tenant)
        # A chosen id may look like a generated one, so its number only says which queue to search first.
        refs = [info.queue for info in sorted(infos, key=lambda info: info.number != number)]
    found: list[Job] = []
    for ref in refs:
        found += [each for each in await store.reads.get(ref, [job]) if each is not None]
        if found and queue_number(job) is not None:
            break
    if not found:
        where = f"queue {queue!r}" if slash else f"any queue of tenant {context.tenant!r}"
        raise JobNotFoundError(f"no job {job} in {where}: it never existed, or was pruned or deleted")
    if len(found) > 1:
        choices = ", ".join(f"{each.queue}/{each.id}" for each in found)
        raise OptionError("job id", job, f"one of {choices}: several queues have this id")
    return found[0]
