"""Declared types: a value passes if it comes back from JSON equal and of the same type."""

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from penstock.core.errors import ConfigError, PayloadError
from penstock.core.payload import (
    MAX_DEPTH,
    MAX_INT,
    MIN_INT,
    PAYLOAD_LIMIT,
    Description,
    check_json,
    encode_json,
    member,
)

_PLAIN: Final = (
    types.AnyType,
    types.NoneType,
    types.BoolType,
    types.IntType,
    types.FloatType,
    types.StrType,
    types.ListType,
    types.DictType,
)
_SCALARS: Final[tuple[tuple[types.Type, type], ...]] = (
    (types.StrType(), str),
    (types.BoolType(), bool),
    (types.NoneType(), type(None)),
    (types.IntType(), int),
)
_AT: Final = re.compile(r"(?P<what>.*?) - at (?:`key` in )?`\$(?P<path>.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.+)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.+)`")
_EXPECTED: Final = re.compile(r"Expected (?P<wanted>.+?)(?:, got .+)?")
_CHOICE: Final = re.compile(r"Invalid (?:enum )?value .+", re.DOTALL)
_INVALID: Final = re.compile(r"Invalid (?P<wanted>.+)")
_TOO_DEEP: Final = f" of at most {MAX_DEPTH} levels"
_STEP: Final = re.compile(r"\.(?P<name>\w+)|\[(?P<index>\d+)\]")


class Declared:
    """The type of one parameter, or of the result. ConfigError when the type has no form in JSON."""

    def __init__(self, field: str, declared: Any) -> None:
        self.type = Any if declared is object else declared
        self._wanted = inspect.formatannotation(declared)
        info = _info(field, self.type, self._wanted)
        self._exact = _exact(info)
        self._is_any = isinstance(info, types.AnyType)
        self._is_plain = all(isinstance(each, _PLAIN) for each in _parts(info)) and _has_text_keys(info)

    def raw(self, field: str, value: Any, limit: int = PAYLOAD_LIMIT) -> Any:
        """What stands for the value in JSON; PayloadError if it is not of the type."""
        kind = type(value)
        if kind in self._exact and (kind is not int or MIN_INT <= value <= MAX_INT):
            return value
        if self._is_any:
            check_json(field, value, limit)
            return value
        if self._is_plain:
            check_json(field, value, limit)
            self._check_comes_back(field, value)
            return value
        return self._encoded(field, value, limit)

    def _check_comes_back(self, field: str, value: Any) -> None:
        try:
            back = msgspec.convert(value, self.type)
        except msgspec.ValidationError as error:
            raise explained(field, value, error) from None
        if back != value:
            raise PayloadError(field, value, self._wanted)

    def _encoded(self, field: str, value: Any, limit: int) -> msgspec.Raw:
        try:
            encoded = msgspec.json.encode(value, enc_hook=_to_json)
            back = msgspec.json.decode(encoded, type=self.type, dec_hook=from_json)
        except msgspec.ValidationError as error:
            raise explained(field, value, error) from None
        except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
            raise PayloadError(field, value, f"{self._wanted} ({_told(error)})") from None
        fault = _difference(value, back, MAX_DEPTH)
        if fault is not None:
            where = field if fault[2] is _TOO_DEEP else field + fault[0]
            raise PayloadError(where, fault[1], f"{self._wanted}{fault[2]}")
        if len(encoded) > limit:
            encode_json(field, msgspec.Raw(encoded), limit)
        return msgspec.Raw(encoded)


def from_json(declared: type, value: Any) -> Any:
    """The hook for models of pydantic, by the model's own rules."""
    return declared.model_validate_json(msgspec.json.encode(value))  # type: ignore[attr-defined]


def explained(field: str, value: Any, error: msgspec.ValidationError) -> PayloadError:
    """The error in our words, naming the member that was wrong."""
    at = _AT.fullmatch(str(error))
    what, path = (at["what"], at["path"]) if at else (str(error), "")
    where = f"{field}{path}" if field else path.removeprefix(".")
    found = _followed(value, path)
    if missing := _MISSING.fullmatch(what):
        return PayloadError(member(where, missing["name"]), Description("nothing"), "a value")
    if unknown := _UNKNOWN.fullmatch(what):
        name = unknown["name"]
        return PayloadError(member(where, name), _followed(found, f".{name}"), "nothing of that name")
    return PayloadError(where or "payload", found, _wanted(what, error.__cause__))


def _wanted(what: str, cause: BaseException | None) -> str:
    """What msgspec says, as something that can be wanted; without the value."""
    if cause is not None:
        return f"another value ({_told(cause)})"
    if expected := _EXPECTED.fullmatch(what):
        return expected["wanted"].replace("`", "")
    if _CHOICE.fullmatch(what):
        return "one of the declared values"
    if invalid := _INVALID.fullmatch(what):
        return f"a valid {invalid['wanted']}"
    return f"another value ({what})"


def _told(error: BaseException) -> str:
    """The message of an error; that of pydantic without the values it quotes."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return str(error)
    found = errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'all of it'}: {each['msg']}" for each in found)


def _to_json(value: Any) -> Any:
    if _is_model(type(value)):
        # What does not fit its declaration is found when it is read back.
        return value.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")


def _is_model(cls: Any) -> bool:
    # A program that declares a model has imported pydantic already; other programs need not.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(cls, type) and issubclass(cls, pydantic.BaseModel)


def _info(field: str, declared: Any, name: str) -> types.Type:
    try:
        info = types.type_info(declared)
    except (TypeError, NameError) as error:
        raise ConfigError(f"{field}: the type {name} has no form in JSON: {error}") from None
    for part in _parts(info):
        if isinstance(part, types.CustomType) and not _is_model(part.cls):
            raise ConfigError(
                f"{field}: the type {name} has no form in JSON: instead of {part.cls.__qualname__} take "
                "text, numbers, lists, dicts, dataclasses, msgspec structs or pydantic models"
            )
    return info


def _parts(info: types.Type) -> Iterator[types.Type]:
    """Every type within a type, itself included; each once, as types may contain themselves."""
    seen: set[int] = set()
    todo: list[Any] = [info]
    while todo:
        part = todo.pop()
        if isinstance(part, types.Field):
            todo.append(part.type)
        elif isinstance(part, tuple):
            todo.extend(part)
        elif isinstance(part, types.Type) and id(part) not in seen:
            seen.add(id(part))
            yield part
            todo.extend(getattr(part, name) for name in part.__struct_fields__)


def _has_text_keys(info: types.Type) -> bool:
    return all(
        isinstance(part.key_type, types.StrType | types.AnyType)
        for part in _parts(info)
        if isinstance(part, types.DictType)
    )


def _exact(declared: types.Type) -> frozenset[type]:
    """The types whose values need no further look."""
    parts = declared.types if isinstance(declared, types.UnionType) else (declared,)
    return frozenset(scalar for part in parts for info, scalar in _SCALARS if part == info)


def _difference(value: Any, back: Any, depth: int) -> tuple[str, Any, str] | None:
    """Where and what came back as something else, and a remark; None if nothing did."""
    kind = type(value)
    if kind is not type(back):
        return (
            None
            if kind is int and type(back) is float and value == back
            else ("", value, f"; {type(back).__name__} comes back")
        )
    if kind is int:
        return None if MIN_INT <= value <= MAX_INT else ("", value, " within 64 bits")
    members = _members(value, back)
    if members is None:
        return None if value == back else ("", value, "")
    if depth == 0:
        return "", Description(kind.__name__), _TOO_DEEP
    if isinstance(value, dict) and value.keys() != back.keys():
        return "", next(key for key in value if key not in back), ", with its keys as declared"
    if isinstance(value, list | tuple) and len(value) != len(back):
        return "", value, ""
    for step, one, other in members:
        fault = _difference(one, other, depth - 1)
        if fault is not None:
            return f"{step}{fault[0]}", fault[1], fault[2]
    return None


def _members(value: Any, back: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """The members of a container in pairs; None for everything that is compared as a whole."""
    if isinstance(value, Enum):
        return None
    if isinstance(value, list | tuple):
        return ((f"[{at}]", one, other) for at, (one, other) in enumerate(zip(value, back, strict=False)))
    if isinstance(value, dict):
        return ((member("·", str(key))[1:], one, back[key]) for key, one in value.items())
    names = _fields(value)
    if names is None:
        return None
    return ((f".{name}", getattr(value, name), getattr(back, name)) for name in names)


def _fields(value: Any) -> list[str] | None:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    if hasattr(value, "__attrs_attrs__"):
        return [attribute.name for attribute in value.__attrs_attrs__]
    return None


def _followed(value: Any, path: str) -> Any:
    """What is at the path; as far as the path can be followed."""
    for step in _STEP.finditer(path):
        try:
            name, index = step["name"], step["index"]
            if index is not None:
                value = value[int(index)]
            elif isinstance(value, dict):
                value = value[name]
            else:
                value = getattr(value, name)
        except (LookupError, TypeError, AttributeError):
            break
    return value
