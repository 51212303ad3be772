"""Where a task's handler runs and within which bounds: as its queue says, then as the task says."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, TypedDict, cast

import msgspec

from penstock.core.errors import OptionError
from penstock.sandbox.permissions import Permissions
from penstock.tasks.options import Defaults, Seconds, milliseconds

RECYCLE_JOBS: Final = 1_000
RECYCLE_BYTES: Final = 1 << 30


class Tier(StrEnum):
    """Where handlers run."""

    INLINE = "inline"
    """In the worker: coroutine functions in its event loop, plain ones in a thread."""
    PROCESS = "process"
    """In processes that are kept for one task and used again."""
    SUBPROCESS = "subprocess"
    """In a process per job: any program."""


class ExecutionOptions(TypedDict, total=False):
    """What a queue or a task can say of how its handlers run."""

    executor: Literal["inline", "process", "subprocess"]
    permissions: Permissions
    """What a handler in a process of its own may do; without them, all that the worker may."""
    sandbox: Literal["strict", "best-effort"]
    """Whether a permission that this machine cannot enforce stops the worker from starting, as it should."""
    program: Sequence[str]
    """What to start for each job, with its arguments; the function only says what its calls look like."""
    listens: bool
    """The program's input stays open, and a line of it tells when to stop."""
    soft_timeout: Seconds
    """When the handler gets an exception, some time before its `timeout` ends it."""
    recycle_jobs: int
    """A process ends after so many jobs."""
    recycle_bytes: int
    """A process ends once it takes so much more memory than it began with."""


class TaskOptions(Defaults, ExecutionOptions, total=False):
    """What a task can say of its jobs, and of how they run."""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one layer, checked. None is: not said here."""

    executor: Tier | None = None
    permissions: Permissions | None = None
    sandbox: Literal["strict", "best-effort"] | None = None
    program: tuple[str, ...] | None = None
    listens: bool | None = None
    soft_timeout_ms: int | None = None
    recycle_jobs: int | None = None
    recycle_bytes: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Execution":
        """Checked; OptionError names the option that cannot be. A program says which executor is meant."""
        said = {
            _FIELDS.get(name, name): _READERS[name](name, value)
            for name, value in given.items()
            if name in ExecutionOptions.__annotations__ and value is not None
        }
        if "program" in said:
            said.setdefault("executor", Tier.SUBPROCESS)
        return cls(**said)

    def over(self, lower: "Execution") -> "Execution":
        """These options, and where they say nothing those of the layer below."""
        said = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(lower, **said)

    def checked(self, timeout_ms: int) -> "Execution":
        """The options themselves, once all layers are in; OptionError where they exclude each other."""
        if self.program is not None and self.executor is not Tier.SUBPROCESS:
            raise OptionError("program", list(self.program), "executor='subprocess' beside it")
        if self.program is None and self.executor is Tier.SUBPROCESS:
            raise OptionError("program", None, "what executor='subprocess' starts, as in program=['resize']")
        if self.permissions is not None and self.tier(None) is Tier.INLINE:
            wanted = "executor='process' or 'subprocess': an inline handler can do all that its worker can"
            raise OptionError("permissions", self.permissions, wanted)
        if self.soft_timeout_ms is not None and self.soft_timeout_ms >= timeout_ms:
            wanted = f"less than the timeout, which is {timeout_ms / 1000:g} s"
            raise OptionError("soft_timeout", self.soft_timeout_ms / 1000, wanted)
        return self

    def said_over(self, lower: "Execution") -> "Execution":
        """As `over`, for what a task says; OptionError where nothing would come of it."""
        whole = self.over(lower)
        if self.listens and whole.program is None:
            raise OptionError("listens", True, "a program beside it, as in program=['resize']")
        if self.sandbox is not None and whole.permissions is None:
            raise OptionError(
                "sandbox", self.sandbox, "permissions beside it, as in permissions=Permissions()"
            )
        return whole

    def tier(self, default: Tier | None) -> Tier:
        """Where the handler runs; `default` where the options do not say."""
        if self.executor is not None:
            return self.executor
        return Tier.PROCESS if self.permissions is not None else default or Tier.INLINE


def job_options(given: Mapping[str, Any]) -> Defaults:
    """Those of the options that are about jobs."""
    said = {name: value for name, value in given.items() if name not in ExecutionOptions.__annotations__}
    return cast(Defaults, said)


def executor_tier(field: str, value: object) -> Tier:
    """The tier of that name, or OptionError."""
    try:
        return Tier(str(value))
    except ValueError:
        raise OptionError(field, value, f"one of {', '.join(Tier)}") from None


def default_tier(field: str, value: object) -> Tier:
    """The tier for tasks that do not say, or OptionError."""
    tier = executor_tier(field, value)
    if tier is Tier.SUBPROCESS:
        raise OptionError(field, value, "inline or process: each program is named by its task")
    return tier


def _permissions(field: str, value: object) -> Permissions:
    if not isinstance(value, Permissions):
        raise OptionError(field, value, "Permissions, such as Permissions(read=['/srv/in'])")
    return value


def _sandbox(field: str, value: object) -> str:
    if not isinstance(value, str) or value not in {"strict", "best-effort"}:
        raise OptionError(field, value, "strict or best-effort")
    return value


def _program(field: str, value: object) -> tuple[str, ...]:
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    parts = tuple(value) if is_list and isinstance(value, Sequence) else ()
    if not parts or not all(isinstance(part, str) and "\0" not in part for part in parts) or not parts[0]:
        raise OptionError(field, value, "a program and its arguments, such as ['resize', '--json']")
    return parts


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise OptionError(field, value, "True or False")
    return value


def _soft(field: str, value: object) -> int:
    found = milliseconds(field, value)
    if found == 0:
        raise OptionError(field, value, "more than 0 seconds")
    return found


def _count(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(field, value, "a whole number from 1 on")
    return value


_FIELDS: Final = {"soft_timeout": "soft_timeout_ms"}
_READERS: Final[dict[str, Any]] = {
    "executor": executor_tier,
    "permissions": _permissions,
    "sandbox": _sandbox,
    "program": _program,
    "listens": _flag,
    "soft_timeout": _soft,
    "recycle_jobs": _count,
    "recycle_bytes": _count,
}
