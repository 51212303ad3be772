"""Which queue a row is for: what its columns say, or else the options."""

from collections.abc import Sequence
from typing import Final

from penstock.core.errors import InvalidError
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.spark.options import SourceOptions
from penstock.spark.sink.job_options import flaw_of
from penstock.spark.sink.values import Flaw, Flaws

NOWHERE: Final = QueueRef("", "")
"""Stands for the queue of a row that names none that could be."""


class QueueRefs:
    """Queues by what rows say, each name checked once."""

    def __init__(self, options: SourceOptions) -> None:
        self._tenant = options.tenants[0]
        self._queue = options.queues[0] if options.queues else None
        self._known: dict[tuple[str | None, str | None], QueueRef | Flaw] = {}

    def of(self, tenants: Sequence[str | None], queues: Sequence[str | None], flaws: Flaws) -> list[QueueRef]:
        """The queue of each row; NOWHERE for a row that is bad."""
        refs = []
        for at, said in enumerate(zip(tenants, queues, strict=True)):
            ref = self._known.get(said)
            if ref is None:
                ref = self._known[said] = self._checked(*said)
            if isinstance(ref, Flaw):
                flaws.setdefault(at, ref)
                ref = NOWHERE
            refs.append(ref)
        return refs

    def _checked(self, tenant: str | None, queue: str | None) -> QueueRef | Flaw:
        try:
            return QueueRef(
                check_name("_tenant", self._tenant if tenant is None else tenant),
                check_name("_queue", self._queue if queue is None else queue),
            )
        except InvalidError as error:
            return flaw_of(error)
