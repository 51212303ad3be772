"""What a worker, its fork server and their children tell each other: frames of JSON of bounded length."""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.tasks.child_jobs import ChildJob
from penstock.tasks.options import JobOptions

_LENGTH: Final = struct.Struct(">I")
CONTROL_LIMIT: Final = 1 << 20
OVERHEAD: Final = 1 << 16
"""Bytes of a frame beside the payload or the result that is in it."""


class FrameError(Exception):
    """What came is not a frame: too long, or not what is told in one."""


class Message(msgspec.Struct, frozen=True, tag=True):
    """What a frame holds."""


# Worker to fork server


class Start(Message, frozen=True):
    """Where the app is: a module, or the file of a script, and a name in it.

    `imports` are more modules, which have its handlers; a script beside a module has some too. The server
    is not ready where it lacks one of `tasks`.
    """

    app: str
    module: str | None
    script: str | None
    path: list[str]
    log_level: int | None = None
    log_json: bool = False
    imports: list[str] = []
    tasks: list[str] = []


class Spawn(Message, frozen=True):
    """Make a child for a task; its descriptors come along."""

    number: int
    task: str


class Signal(Message, frozen=True):
    """Send a signal to a child that has not been reaped."""

    number: int
    signal: int


# Fork server to worker


class Ready(Message, frozen=True):
    """The app is imported, and its permissions can be enforced.

    With more than one thread, what is forked may hang. A process of a task in `for_one_job` is not kept.
    """

    threads: int
    for_one_job: list[str] = []


class Broken(Message, frozen=True):
    """The app cannot be imported, or a task of it not be confined as it should."""

    error: str


class Unspawned(Message, frozen=True):
    """There is no such child, and why."""

    number: int
    error: str


class Exited(Message, frozen=True):
    """A child ended, and all that it started; `left` of those would not go."""

    number: int
    status: int
    left: int = 0


# Worker to child


class Run(Message, frozen=True, kw_only=True):
    """Execute a job. There is no token in it: a handler settles nothing."""

    number: int
    id: str
    queue: str
    tenant: str
    worker: str
    attempt: int
    max_attempts: int
    delivery: int
    drive: int
    fence: int
    priority: int
    key: str | None
    enqueued_at: float
    deadline: float
    soft: float | None
    payload: bytes
    headers: dict[str, str] = {}


class Stop(Message, frozen=True):
    """The handler of that job should stop."""

    number: int


class Answer(Message, frozen=True):
    """What the handler asked for, or why it does not get it."""

    number: int
    children: list[ChildJob] = []
    ids: list[str] = []
    error: str | None = None
    message: str = ""


# Child to worker


class Progress(Message, frozen=True):
    """How far the handler is."""

    value: bytes


class SpawnCall(msgspec.Struct, frozen=True):
    """A job that the handler wants made."""

    task: str
    queue: str
    payload: bytes
    options: JobOptions


class Ask(Message, frozen=True):
    """The handler wants to know its children, or to have more."""

    number: int
    spawn: list[SpawnCall] | None = None


class Done(Message, frozen=True, kw_only=True):
    """How the execution ended, and what the child is like after it."""

    number: int
    kind: str
    result: bytes | None = None
    error: str = ""
    message: str = ""
    text: str = ""
    after: float | None = None
    reason: str | None = None
    saw_stop: bool = False
    has_left: bool = False
    """Processes that the handler started are still there."""
    grown: int = 0
    """Bytes in memory, beyond what the child began with."""


class Unfit(Message, frozen=True):
    """The child cannot run handlers at all."""

    error: str


ToServer = Start | Spawn | Signal
FromServer = Ready | Broken | Unspawned | Exited
ToChild = Run | Stop | Answer
FromChild = Progress | Ask | Done | Unfit

_ENCODER: Final = msgspec.json.Encoder()


def frame(message: Message) -> bytes:
    """The message with its length before it."""
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cuts what arrives into frames."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are complete now; FrameError for one that is longer than agreed."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > self._limit:
                raise FrameError(f"a frame of {length} bytes came, and {self._limit} are allowed")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield body

    @property
    def has_rest(self) -> bool:
        """True when part of a frame has arrived."""
        return bool(self._buffer)
