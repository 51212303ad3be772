"""A close look at some jobs of a queue: what exactly their records and the queue's indexes disagree on."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Set

from penstock.core.states import State
from penstock.stores.corruption import DECODE_ERRORS, unreadable_record
from penstock.stores.redis.codec.jobs import Record, read_whole
from penstock.stores.redis.codec.lanes import Lane
from penstock.stores.redis.inspection.key_pages import PageReader
from penstock.stores.redis.inspection.sums import ENDED, PRUNABLE, SIDE_HASHES, KeyCounts, line_of, lines_of
from penstock.stores.redis.keys import QueueKeys
from penstock.stores.values import Finding


class CloseLook:
    """Reads all of a queue, and holds on to what belongs to the jobs that it is to look at."""

    def __init__(
        self,
        pages: PageReader,
        keys: QueueKeys,
        lanes: Mapping[str, Lane],
        is_wanted: Callable[[bytes], bool],
    ) -> None:
        self._pages = pages
        self._keys = keys
        self._lanes = lanes
        self._is_wanted = is_wanted
        self._records: dict[str, Record] = {}
        self._unreadable: dict[str, Finding] = {}

    async def take(self) -> tuple[list[Finding], KeyCounts]:
        """What is wrong with these jobs, and what the records of all jobs say of the queue's keys."""
        counts = await self._read_records()
        found = [
            *self._unreadable.values(),
            *await self._beside(),
            *await self._pending(),
            *await self._blocked(),
            *await self._delayed(),
            *await self._active(),
            *await self._ended(),
        ]
        return found, counts

    async def _read_records(self) -> KeyCounts:
        counts = KeyCounts()
        async for page in self._pages.hash(self._keys.records):
            for job, packed in page.items():
                is_wanted = self._is_wanted(job)
                if not is_wanted and not self._lanes:
                    continue
                name = _text(job)
                try:
                    record = read_whole(packed)
                except DECODE_ERRORS as error:
                    if is_wanted:
                        self._unreadable[name] = Finding(unreadable_record(error), name)
                    continue
                if is_wanted:
                    self._records[name] = record
                if self._lanes:
                    counts.count(record)
        return counts

    async def _beside(self) -> list[Finding]:
        """What stands under a job's id beside its record."""
        records = self._records.keys()
        known = records | self._unreadable.keys()
        listed = {job async for job, _ in self._scores(self._keys.jobs)}
        out = [
            *_each("a record that is not in the list of jobs", records - listed),
            *_each("an entry in the list of jobs without a record", listed - known),
        ]
        for name in ("payloads", *SIDE_HASHES):
            held = {
                _text(job)
                async for fields in self._pages.fields(getattr(self._keys, name))
                for job in fields
                if self._is_wanted(job)
            }
            out += _each(f"one of the {name} without a record", held - known)
            if name == "payloads":
                out += _each("a record without a payload", records - held)
        return out

    async def _pending(self) -> list[Finding]:
        out: list[Finding] = []
        lines = lines_of(self._lanes)
        standing: dict[int | str, list[bytes]] = {}
        async for at, entries in self._pages.lists([self._keys.pending(line) for line in lines]):
            standing.setdefault(lines[at], []).extend(self._wanted_of(entries))
        notes: dict[int | str, set[bytes]] = {}
        async for at, members in self._pages.sets([self._keys.gone(line) for line in lines]):
            notes.setdefault(lines[at], set()).update(self._wanted_of(members))
        claimable: Counter[str] = Counter()
        for line in lines:
            entries, left = standing.get(line, []), notes.get(line, set())
            for entry in entries:
                place, _, job = _text(entry).partition(" ")
                record = self._records.get(job)
                stands = (
                    record is not None
                    and record.state is State.PENDING
                    and str(record.place) == place
                    and line == line_of(record, self._lanes)
                )
                claimable[job] += stands
                if stands == (entry in left):
                    what = "a pending job noted as gone" if stands else "a pending entry without its job"
                    out.append(Finding(what, job))
            out += _each("a note of an entry that is not there", (_text(e) for e in left - set(entries)))
        for job, record in self._records.items():
            if record.state is State.PENDING and claimable[job] != 1:
                out.append(Finding(f"a pending job that stands {claimable[job]} times in its list", job))
        return out

    async def _blocked(self) -> list[Finding]:
        found = {job async for job, _ in self._scores(self._keys.blocked)}
        wanted = {job for job, record in self._records.items() if record.state is State.BLOCKED}
        return [
            *_each("an entry among the blocked that no record backs", found - wanted),
            *_each("a record that is missing among the blocked", wanted - found),
        ]

    async def _delayed(self) -> list[Finding]:
        found = {
            (_text(member), score)
            async for page in self._pages.scores(self._keys.delayed)
            for member, score in page
            if self._is_wanted(_job_of(member))
        }
        wanted = {
            (f"{record.place:016d} {job}", int(record.visible_at))
            for job, record in self._records.items()
            if record.state is State.DELAYED
        }
        return _differences("delayed", found, wanted, lambda entry: entry.partition(" ")[2])

    async def _active(self) -> list[Finding]:
        found = {each async for each in self._scores(self._keys.active)}
        active = {job: record for job, record in self._records.items() if record.state is State.ACTIVE}
        bare = [job for job, record in active.items() if record.token is False or record.deadline is False]
        wanted = {(job, int(record.deadline)) for job, record in active.items()}
        return [*_each("an active job without a lease", bare), *_differences("active", found, wanted)]

    async def _ended(self) -> list[Finding]:
        out: list[Finding] = []
        records = self._records.items()
        for state in ENDED:
            found = {each async for each in self._scores(self._keys.ended(state))}
            wanted = {(job, int(record.ended_at)) for job, record in records if record.state is state}
            out += _differences(state, found, wanted)
        found = {each async for each in self._scores(self._keys.prunable)}
        kept = {
            (job, int(record.ended_at) + record.retention_ms)
            for job, record in records
            if record.state in PRUNABLE
        }
        return [*out, *_differences("prunable", found, kept)]

    async def _scores(self, key: str) -> AsyncIterator[tuple[str, int]]:
        """The entries of an index of jobs by a number."""
        async for page in self._pages.scores(key):
            for job, score in page:
                if self._is_wanted(job):
                    yield _text(job), score

    def _wanted_of(self, entries: Iterable[bytes]) -> Iterator[bytes]:
        return (entry for entry in entries if self._is_wanted(_job_of(entry)))


def _text(found: bytes) -> str:
    return found.decode(errors="backslashreplace")


def _job_of(entry: bytes) -> bytes:
    return entry.partition(b" ")[2]


def _each(what: str, jobs: Iterable[str]) -> list[Finding]:
    return [Finding(what, job) for job in sorted(jobs)]


def _differences(
    index: str,
    found: Set[tuple[str, int]],
    wanted: Set[tuple[str, int]],
    job_of: Callable[[str], str] = str,
) -> list[Finding]:
    return [
        *_each(f"an entry among the {index} that no record backs", (job_of(e) for e, _ in found - wanted)),
        *_each(f"a record that is missing among the {index}", (job_of(e) for e, _ in wanted - found)),
    ]
