"""From an id as people write it to the job it means."""

from collections.abc import Sequence

from penstock.cli.desk import Desk
from penstock.core.errors import JobNotFoundError, OptionError
from penstock.core.ids import queue_number
from penstock.core.job import Job, QueueRef
from penstock.core.names import check_name
from penstock.stores.protocol import Store


async def find_job(desk: Desk, store: Store, text: str) -> Job:
    """The job behind `id` or `queue/id`.

    A generated id carries its queue's number; a chosen one is looked for in every queue of the tenant.
    """
    queue, slash, job = text.rpartition("/")
    check_name("job id", job)
    if slash:
        refs: Sequence[QueueRef] = [(await desk.queue(store, queue)).queue]
    else:
        number = queue_number(job)
        infos = await store.queues(desk.tenant)
        # A chosen id may look like a generated one, so the number only says where to look first.
        refs = [info.queue for info in sorted(infos, key=lambda info: info.number != number)]
    found: list[Job] = []
    for ref in refs:
        found += [each for each in await store.get(ref, [job]) if each is not None]
        if found and queue_number(job) is not None:
            break
    if not found:
        where = f"queue {queue!r}" if slash else f"any queue of tenant {desk.tenant!r}"
        raise JobNotFoundError(f"no job {job} in {where}: it was never there, or was pruned or deleted")
    if len(found) > 1:
        choices = ", ".join(f"{each.queue}/{each.id}" for each in found)
        raise OptionError("job id", job, f"one of {choices}: several queues have this id")
    return found[0]
