"""All settings. A value comes from a flag, PENSTOCK_<NAME>, a TOML file or the default, in that order.

No other module reads these. A setting `worker.lease` is the variable PENSTOCK_WORKER_LEASE and
the key `lease` in the table `[worker]`; top-level ones such as `url` are PENSTOCK_URL and a top-level key.
"""

import difflib
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

import msgspec

from penstock.core.errors import ConfigError, OptionError
from penstock.core.limits import MOST_PER_CALL
from penstock.core.payload import Description
from penstock.core.scaling import MAX_UNITS
from penstock.core.store_url import shown_url

PREFIX: Final = "PENSTOCK_"
_ORCHESTRATOR_PREFIX: Final = f"{PREFIX}SERVICE_"
CONFIG_VARIABLE: Final = "PENSTOCK_CONFIG"
"""The variable that names the TOML file."""


class Seconds(float):
    """A duration: a number of seconds, or text such as 500ms, 30s, 10m, 1h30m, 7d."""

    wanted = "seconds, or a duration such as 500ms, 30s, 10m or 1h30m"


class Slots(dict[str, int]):
    """Slots per queue, from text such as a=50,b=5 or a TOML table; 0 stands for the setting `concurrency`."""

    wanted = "each queue once, with one slot or more, such as mail=50,reports=5"


class Processes(int):
    """A number of worker processes; 0 stands for auto."""

    wanted = "a number of processes from 1 to 10000, or auto"


class Size(int):
    """A size in bytes: a number, or text such as 512MiB or 2GiB."""

    wanted = "bytes, or a size such as 512MiB or 2GiB"


class Port(int):
    """A port to listen on; 0 picks a free port."""

    wanted = "a port, 0 to 65535"


class LogLevel(str):
    """A level of the logging module, in lower case."""

    wanted = "one of debug, info, warning, error, critical"
    __slots__ = ()


class ExecutorName(str):
    """The executor of tasks that name none themselves or through their queue."""

    wanted = "inline or process"
    __slots__ = ()


MAX_SECONDS: Final = 100 * 366 * 86_400.0
"""The longest duration: a hundred years, which can be added to any time."""
MAX_COUNT: Final = 1_000_000_000
Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
PerCall = Annotated[int, msgspec.Meta(ge=1, le=MOST_PER_CALL)]


class _SettingsGroup(msgspec.Struct, frozen=True, kw_only=True):
    pass


class WorkerSettings(_SettingsGroup, frozen=True, kw_only=True):
    """Settings of `penstock worker`; for None the app has a default."""

    queues: Slots | None = None
    concurrency: Count | None = None
    lease: Seconds | None = None
    shutdown_timeout: Seconds | None = None
    no_handler_after: Seconds | None = None
    stuck_after: Seconds | None = None
    term_after: Seconds | None = None
    kill_after: Seconds | None = None
    claim_scan: PerCall | None = None
    promote_limit: PerCall | None = None
    recover_limit: PerCall | None = None
    poll: Seconds | None = None
    sweep: Seconds | None = None
    burst: bool = False
    executor: ExecutorName | None = None
    app_version: str | None = None
    processes: Processes | None = None
    min_processes: Count | None = None
    max_processes: Count | None = None
    target_wait: Seconds | None = None
    backlog_per_slot: Count | None = None
    max_jobs: Count | None = None
    max_memory: Size | None = None
    reload: bool = False
    health_host: str = "127.0.0.1"
    health_port: Port | None = None
    log_level: LogLevel = LogLevel("info")
    log_json: bool = False


class ListSettings(_SettingsGroup, frozen=True, kw_only=True):
    """Settings of the commands that list."""

    limit: Count = 50


class ServeSettings(_SettingsGroup, frozen=True, kw_only=True):
    """Settings of `penstock serve`."""

    host: str = "127.0.0.1"
    port: Port = Port(8640)
    auth_file: str | None = None
    json_values: Count = 50_000
    shutdown_timeout: Seconds = Seconds(10)
    connections: Count = 1_000
    connections_per_peer: Count | None = None
    connections_per_tenant: Count | None = None
    requests_per_tenant: Count | None = None
    streams: Count | None = None
    streams_per_tenant: Count | None = None
    sweep: Seconds = Seconds(300)
    log_level: LogLevel = LogLevel("info")
    log_json: bool = False


class EgressSettings(_SettingsGroup, frozen=True, kw_only=True):
    """Addresses that webhooks may reach in addition to the public internet; lists are separated by commas."""

    allow: str | None = None
    ports: str | None = None
    plain: bool = False


class AuthSettings(_SettingsGroup, frozen=True, kw_only=True):
    """The development key, which signs and verifies tokens for development."""

    key: str | None = None
    key_file: str | None = None

    def __repr__(self) -> str:
        return f"AuthSettings(key={_redacted(self.key)}, key_file={self.key_file!r})"


class Share(float):
    """A fraction, more than 0 and less than 1."""

    wanted = "a share between 0 and 1, such as 0.01"


class BloomSettings(_SettingsGroup, frozen=True, kw_only=True):
    """The Bloom filters: whether each is on; capacity, false-positive rate and rotation of its buffers."""

    idempotency: bool = False
    idempotency_capacity: Count = 1_000_000
    idempotency_rate: Share = Share(0.01)
    idempotency_rotation: Seconds = Seconds(30 * 60)
    ghost: bool = False
    ghost_capacity: Count = 2_000_000
    ghost_rate: Share = Share(1e-12)
    ghost_rotation: Seconds = Seconds(6 * 3600)
    cleanup: bool = False
    cleanup_capacity: Count = 2_000_000
    cleanup_rate: Share = Share(0.01)
    cleanup_rotation: Seconds = Seconds(6 * 3600)


class DemoSettings(_SettingsGroup, frozen=True, kw_only=True):
    """Settings of `penstock demo`."""

    jobs: Count = 3_000
    workers: Count = 3
    seed: int | None = None
    dir: str | None = None


class Settings(_SettingsGroup, frozen=True, kw_only=True):
    """All settings, with their values from flags, environment, file and defaults."""

    url: str | None = None
    token: str | None = None
    secret_key: str | None = None
    tenant: str | None = None
    app: str | None = None
    json: bool = False
    absolute_times: bool = False
    debug: bool = False
    worker: WorkerSettings = WorkerSettings()
    list: ListSettings = ListSettings()
    serve: ServeSettings = ServeSettings()
    egress: EgressSettings = EgressSettings()
    auth: AuthSettings = AuthSettings()
    bloom: BloomSettings = BloomSettings()
    demo: DemoSettings = DemoSettings()

    def __repr__(self) -> str:
        parts = {name: getattr(self, name) for name in self.__struct_fields__}
        parts |= {"token": _redacted(self.token), "secret_key": _redacted(self.secret_key)}
        parts["url"] = None if self.url is None else shown_url(self.url)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in parts.items())})"


def load(
    flags: Mapping[str, object] | None = None,
    *,
    config: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Read the settings; `flags` are by name, as in `worker.lease`, and None stands for a flag not given.

    `environ` and `directory` are by default those of the process. An empty variable counts as not set.

    >>> load({"worker.lease": "2m"}, environ={"PENSTOCK_URL": "memory://"}, directory=Path("/")).worker.lease
    120.0
    """
    environ = {name: text for name, text in (os.environ if environ is None else environ).items() if text}
    _refuse_misspelled(environ)
    table = _read_toml(config or environ.get(CONFIG_VARIABLE), directory or Path())
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    if unknown := given.keys() - dict(_fields()).keys():
        raise ConfigError(f"no setting is called {min(unknown)}")
    values: dict[str, object] = {}
    for name, kind in _fields():
        if name in given:
            values[name] = _converted(flag_of(name), given[name], kind)
        elif (text := environ.get(variable_of(name))) is not None:
            values[name] = _converted(f"{name} (from {variable_of(name)})", text, kind)
        elif name in table:
            found, path = table[name]
            values[name] = _converted(f"{name} (from {path})", found, kind)
    return _built(values)


def token_of_environment() -> str | None:
    """The value of PENSTOCK_TOKEN; apps read it too, because a secret should not be in code."""
    return os.environ.get(variable_of("token")) or None


def url_of_environment() -> str | None:
    """The value of PENSTOCK_URL; an app that names no store reads it, as the command line does."""
    return os.environ.get(variable_of("url")) or None


def names() -> list[str]:
    """The name of every setting."""
    return [name for name, _ in _fields()]


def flag_of(name: str) -> str:
    """The flag of a setting on the command line.

    >>> flag_of("worker.shutdown_timeout")
    '--shutdown-timeout'
    """
    return f"--{name.rpartition('.')[2].replace('_', '-')}"


def variable_of(name: str) -> str:
    """The environment variable of a setting.

    >>> variable_of("worker.shutdown_timeout")
    'PENSTOCK_WORKER_SHUTDOWN_TIMEOUT'
    """
    return PREFIX + name.replace(".", "_").upper()


def seconds(field: str, found: object) -> float:
    """A duration in seconds from a number or from text such as 1h30m; OptionError names the field.

    >>> seconds("--delay", "1h30m")
    5400.0
    """
    parts = _DURATION.fullmatch(found.strip().lower()) if isinstance(found, str) else None
    if parts is not None and any(parts.groups()):
        units = zip(parts.groups(), (86_400, 3_600, 60, 1, 0.001), strict=True)
        number = float(sum(float(part) * unit for part, unit in units if part))
    else:
        try:
            number = float(found) if isinstance(found, str | int | float) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
    if isinstance(found, bool) or not 0 <= number <= MAX_SECONDS:
        raise OptionError(field, found, Seconds.wanted)
    return number


_PART: Final = r"(?:(\d+(?:\.\d+)?){unit})?"
_DURATION: Final = re.compile("".join(_PART.format(unit=unit) for unit in ("d", "h", "m(?!s)", "s", "ms")))
_SECRETS: Final = frozenset(
    {"url", "token", "auth.key", "secret_key", "--url", "--token", "--key", "--secret-key"}
)
"""Names and flags of the settings whose values are secret, and not repeated in errors."""
_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "critical"})


def _fields(struct: type[_SettingsGroup] = Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(struct):
        if isinstance(field.type, type) and issubclass(field.type, _SettingsGroup):
            yield from _fields(field.type, f"{field.name}.")
        else:
            yield prefix + field.name, field.type


def _read_toml(config: str | Path | None, directory: Path) -> dict[str, tuple[object, Path]]:
    """The settings in the TOML file by name, each with the path of the file."""
    if config is not None:
        path = directory / Path(config).expanduser()
        return _flattened(_penstock_section(_parse_toml(path), path), path)
    own, project = directory / "penstock.toml", directory / "pyproject.toml"
    if own.is_file():
        return _flattened(_parse_toml(own), own)
    return _flattened(_penstock_section(_parse_toml(project), project), project) if project.is_file() else {}


def _parse_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        why = (error.strerror or error) if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: cannot be read as TOML: {why}") from None


def _penstock_section(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """The part of the file about Penstock: of a pyproject.toml only the table tool.penstock."""
    if path.name != "pyproject.toml":
        return document
    section = document.get("tool", {}).get("penstock", {})
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: tool.penstock: found {section!r}, wanted a table")
    return section


def _flattened(document: dict[str, Any], path: Path) -> dict[str, tuple[object, Path]]:
    known = names()
    groups = {name.partition(".")[0] for name in known if "." in name}
    found: dict[str, object] = {}
    for raw, value in document.items():
        key = raw.replace("-", "_")
        if key not in groups:
            found[key] = value
        elif isinstance(value, dict):
            found |= {f"{key}.{inner.replace('-', '_')}": each for inner, each in value.items()}
        else:
            raise ConfigError(f"{path}: {raw}: found {value!r}, wanted a table such as [{key}]")
    for key in found:
        if key not in known:
            raise ConfigError(f"{path}: no setting is called {key}{_suggestion(key, known)}")
    return {key: (value, path) for key, value in found.items()}


def _refuse_misspelled(environ: Mapping[str, str]) -> None:
    # Only variables that look like a typing error: orchestrators set ones such as PENSTOCK_SERVICE_HOST.
    known = [CONFIG_VARIABLE, *map(variable_of, names())]
    for name in environ:
        if name.startswith(PREFIX) and name not in known and not name.startswith(_ORCHESTRATOR_PREFIX):
            near = difflib.get_close_matches(name, known, 1, 0.9)
            if near:
                raise ConfigError(f"{name}: no such setting; did you mean {near[0]}?")


def _suggestion(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, 1, 0.5)
    if not near:
        near = [name for name in known if name.endswith(f".{key}")][:1]
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _converted(field: str, found: object, kind: Any) -> object:
    try:
        # Text from flags and the environment may be a number or a boolean; TOML has types of its own.
        return msgspec.convert(found, kind, strict=not isinstance(found, str), dec_hook=_custom(field))
    except msgspec.ValidationError:
        is_secret = field.partition(" ")[0] in _SECRETS
        raise OptionError(field, _redacted(found) if is_secret else found, _wanted(kind)) from None


def _redacted(found: object) -> Description | None:
    """How a secret is shown: that it is set, and its type if that is wrong."""
    return None if found is None else Description("…" if isinstance(found, str) else type(found).__name__)


def _wanted(kind: Any) -> str:
    for each in get_args(kind) or (kind,):
        if hasattr(each, "wanted"):
            return str(each.wanted)
    if "int" in str(kind):
        most = MOST_PER_CALL if kind == PerCall | None else MAX_COUNT
        return f"a whole number from 1 to {most}"
    return "true or false" if kind is bool else "text"


T = TypeVar("T")


def _custom(field: str) -> Any:
    def hook(kind: type[T], found: Any) -> T:
        if kind is Seconds:
            return kind(seconds(field, found))  # type: ignore[call-arg]
        if kind is Share:
            return kind(_share(field, found))  # type: ignore[call-arg]
        if kind is Slots:
            return kind(_slots(field, found))  # type: ignore[call-arg]
        if kind is ExecutorName:
            if str(found) not in {"inline", "process"}:
                raise OptionError(field, found, ExecutorName.wanted)
            return kind(str(found))  # type: ignore[call-arg]
        if kind is Processes:
            return kind(_processes(field, found))  # type: ignore[call-arg]
        if kind is Size:
            return kind(_size(field, found))  # type: ignore[call-arg]
        if kind is Port:
            if not str(found).isdecimal() or int(str(found)[:6]) > 65_535:
                raise OptionError(field, found, Port.wanted)
            return kind(found)  # type: ignore[call-arg]
        if str(found).lower() not in _LEVELS:
            raise OptionError(field, found, LogLevel.wanted)
        return kind(str(found).lower())  # type: ignore[call-arg]

    return hook


def _processes(field: str, found: object) -> int:
    if str(found).strip().lower() == "auto":
        return 0
    number = int(str(found)) if str(found).isdecimal() and len(str(found)) < 6 else 0
    if not 1 <= number <= MAX_UNITS:
        raise OptionError(field, found, Processes.wanted)
    return number


def _size(field: str, found: object) -> int:
    parts = _SIZE.fullmatch(str(found).strip())
    size = 0.0 if parts is None else float(parts[1]) * 1024 ** _SIZE_UNITS.index(parts[2] or "B")
    if not 1 <= size < 2**53:
        raise OptionError(field, found, Size.wanted)
    return int(size)


_SIZE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_SIZE: Final = re.compile(r"(\d{1,16}(?:\.\d{1,6})?) ?(B|KiB|MiB|GiB|TiB)?")


def _share(field: str, found: object) -> float:
    try:
        share = float(found) if isinstance(found, str | float) else math.nan
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise OptionError(field, found, Share.wanted)
    return share


def _slots(field: str, found: object) -> dict[str, int]:
    if isinstance(found, str):
        parts = (part.partition("=") for part in found.split(",") if part.strip())
        entries: list[tuple[str, object]] = [
            (name.strip(), int(number) if number.strip().isdecimal() else (number if equals else None))
            for name, equals, number in parts
        ]
    elif isinstance(found, list):
        entries = [(str(name), None) for name in found]
    else:
        entries = list(found.items()) if isinstance(found, dict) else []
    slots = {
        name: number or 0
        for name, number in entries
        if number is None or (type(number) is int and 1 <= number <= MAX_COUNT)
    }
    if not slots or len(slots) < len(entries):
        raise OptionError(field, found, Slots.wanted)
    return slots


def _built(values: dict[str, object]) -> Settings:
    top: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    for field in msgspec.structs.fields(Settings):
        if isinstance(field.type, type) and issubclass(field.type, _SettingsGroup):
            inner = {
                name.partition(".")[2]: value
                for name, value in values.items()
                if name.startswith(f"{field.name}.")
            }
            top[field.name] = field.type(**inner)
    return Settings(**top)
