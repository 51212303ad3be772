"""A function's parameters and result as JSON, compiled once per task."""

import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.core.declared import Declared, explained, from_json
from penstock.core.errors import ConfigError, PayloadError
from penstock.core.payload import PAYLOAD_LIMIT, Description, decode_json, encode_json
from penstock.tasks.context import JobContext

Bound = tuple[tuple[Any, ...], dict[str, Any]]

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_RESULT: Final = "result"
_ANYTHING: Final = Declared("argument", Any)


class Signature:
    """How calls of one function travel. ConfigError for types that have no form in JSON.

    The payload is an object, parameter name → value. Only what was passed is in it: defaults are those of
    the handler that runs the job. `*args` stand as a list under their name; `**kwargs` are members
    themselves.
    """

    def __init__(self, function: Callable[..., Any], limit: int = PAYLOAD_LIMIT) -> None:
        self._limit = limit
        hints = _hints(function)
        parameters = list(_parameters(function).values())
        if parameters and parameters[0].name == "self" and "self" not in hints:
            name = getattr(function, "__name__", repr(function))
            wanted = "a handler that wants to know its job takes ctx: JobContext"
            raise ConfigError(f"{name}(self, …) cannot be a task: {wanted}")
        self._context = [each.name for each in parameters if _is_context(hints.get(each.name))]
        self._passed = [each for each in parameters if each.name not in self._context]
        self._signature = inspect.Signature(self._passed)
        self._types = {each.name: _declared(each, hints.get(each.name, Any)) for each in self._passed}
        self._result = Declared(_RESULT, hints.get("return", Any))
        self._many = _only(self._passed, inspect.Parameter.VAR_POSITIONAL)
        self._rest = _only(self._passed, inspect.Parameter.VAR_KEYWORD)
        self._rest_type = self._types.pop(self._rest) if self._rest else _ANYTHING
        arguments = _arguments_type(self._passed, self._types)
        self._struct_names: tuple[str, ...] = arguments.__struct_encode_fields__
        self._decoder = msgspec.json.Decoder(arguments, dec_hook=from_json)
        self._result_decoder = msgspec.json.Decoder(self._result.type, dec_hook=from_json)
        self._parameters = parameters
        kinds = {each.kind for each in self._passed}
        self._is_simple = kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._names = [each.name for each in self._passed]
        self._declared = list(self._types.items())
        self._is_plain = self._is_simple and not self._context
        self._required = {each.name for each in self._passed if each.default is inspect.Parameter.empty}

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The payload of a call; PayloadError names the argument that cannot be."""
        if not args and not kwargs and self._is_simple and not self._required:
            return b"{}"
        if not kwargs and self._is_simple and len(args) == len(self._names):
            raw, limit = {}, self._limit
            for (name, kind), value in zip(self._declared, args, strict=True):
                raw[name] = kind.raw(name, value, limit)
            return self._bytes(raw)
        return self._encoded(self._by_name(args, kwargs))

    def partial(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Some arguments as they stand in a payload, by name."""
        try:
            values = self._signature.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise PayloadError(*self._wrong_call(args, kwargs, error)) from None
        values = self._flat(values)
        partial: dict[str, Any] = decode_json("payload", self._encoded(values))
        return partial

    def bind(self, payload: bytes, context: JobContext | None) -> Bound:
        """The arguments of the handler, checked, with the context where it wants one."""
        try:
            decoded = self._decoder.decode(payload)
        except msgspec.ValidationError as error:
            raise explained("", decode_json("payload", payload), error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            decode_json("payload", payload)
            raise
        # The struct has its fields in the order of the parameters.
        if self._is_plain:
            return msgspec.structs.astuple(decoded), {}
        values = dict(zip(self._struct_names, msgspec.structs.astuple(decoded), strict=True))
        rest = {} if self._rest is None else self._decoded_rest(payload)
        return self._placed(values, rest, context)

    def encode_result(self, value: Any) -> bytes | None:
        """A result; None stays None, where the function may return that."""
        raw = self._result.raw(_RESULT, value, self._limit)
        return None if value is None else encode_json(_RESULT, raw, self._limit)

    def decode_result(self, encoded: bytes | None) -> Any:
        """A stored result, as the function declares it."""
        if encoded is None:
            return None
        try:
            return self._result_decoder.decode(encoded)
        except msgspec.ValidationError as error:
            raise explained(_RESULT, decode_json(_RESULT, encoded), error) from None

    def _by_name(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if self._is_simple and len(args) <= len(self._names):
            values = dict(zip(self._names, args, strict=False))
            fits = kwargs.keys().isdisjoint(values)
            values.update(kwargs)
            if fits and self._required <= values.keys() <= self._types.keys():
                # Equal calls give equal bytes, in whatever order they were written.
                return {name: values[name] for name in self._names if name in values} if kwargs else values
        return self._bound_by_name(args, kwargs)

    def _bound_by_name(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        taken = self._types.keys() & kwargs.keys() - self._keywords()
        clashes = sorted(taken | set(self._context) & kwargs.keys())
        if clashes and (self._rest is not None or clashes[0] in self._context):
            raise PayloadError(
                clashes[0], kwargs[clashes[0]], "no keyword argument of that name: it is taken"
            )
        try:
            values = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise PayloadError(*self._wrong_call(args, kwargs, error)) from None
        return self._flat(values)

    def _flat(self, values: dict[str, Any]) -> dict[str, Any]:
        if self._many is not None and self._many in values:
            values[self._many] = list(values[self._many])
        if self._rest is not None:
            values.update(sorted(values.pop(self._rest, {}).items()))
        return values

    def _keywords(self) -> set[str]:
        """The parameters that can be passed by name."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {each.name for each in self._passed if each.kind in kinds}

    def _wrong_call(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: TypeError
    ) -> tuple[str, Any, str]:
        unknown = [name for name in kwargs if name not in self._keywords()]
        if unknown and self._rest is None:
            return unknown[0], kwargs[unknown[0]], f"no argument of that name: they are {self._signature}"
        given = set(self._names[: len(args)])
        if given & kwargs.keys():
            name = min(given & kwargs.keys())
            return name, kwargs[name], f"it once: the arguments are {self._signature}"
        missing = [name for name in self._names if name in self._required - given - kwargs.keys()]
        if missing:
            return missing[0], Description("nothing"), f"a value: the arguments are {self._signature}"
        return "arguments", args, f"{self._signature} ({error})"

    def _encoded(self, values: Mapping[str, Any]) -> bytes:
        raw = {
            name: self._types.get(name, self._rest_type).raw(name, value, self._limit)
            for name, value in values.items()
        }
        return self._bytes(raw)

    def _bytes(self, raw: dict[str, Any]) -> bytes:
        try:
            return encode_json("payload", raw, self._limit)
        except PayloadError as error:
            if error.field == "payload":
                raise
            raise PayloadError(error.field.removeprefix("payload."), error.found, error.wanted) from None

    def _decoded_rest(self, payload: bytes) -> dict[str, Any]:
        members = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        rest = {key: raw for key, raw in members.items() if key not in self._struct_names}
        taken = sorted(rest.keys() & (self._types.keys() | set(self._context)))
        if taken:
            raise PayloadError(taken[0], decode_json(taken[0], rest[taken[0]]), "another name: it is taken")
        decoder = msgspec.json.Decoder(self._rest_type.type, dec_hook=from_json)
        values = {}
        for key, raw in rest.items():
            try:
                values[key] = decoder.decode(raw)
            except msgspec.ValidationError as error:
                raise explained(key, decode_json(key, raw), error) from None
        return values

    def _placed(self, values: dict[str, Any], rest: dict[str, Any], context: JobContext | None) -> Bound:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for each in self._parameters:
            if each.name == self._rest:
                kwargs.update(rest)
                continue
            value: Any = context if each.name in self._context else values[each.name]
            if each.kind in _POSITIONAL:
                args.append(value)
            elif each.name == self._many:
                args.extend(value)
            else:
                kwargs[each.name] = value
        return tuple(args), kwargs


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{function!r} cannot be a task: {error}") from None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations, texts resolved; NameError while a name in one of them is not there yet."""
    target = inspect.unwrap(function)
    if not inspect.isroutine(target):
        target = getattr(target, "func", None) or type(target).__call__
    # The context's name may be imported for type checkers only.
    names = {"JobContext": JobContext} | getattr(target, "__globals__", {})
    return get_type_hints(target, globalns=names, include_extras=True)


def _is_context(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return JobContext in get_args(hint)
    return hint is JobContext


def _only(parameters: list[inspect.Parameter], kind: Any) -> str | None:
    return next((each.name for each in parameters if each.kind is kind), None)


def _declared(parameter: inspect.Parameter, hint: Any) -> Declared:
    is_many = parameter.kind is inspect.Parameter.VAR_POSITIONAL
    return Declared(parameter.name, list[hint] if is_many else hint)


def _arguments_type(parameters: list[inspect.Parameter], types: Mapping[str, Declared]) -> Any:
    """A struct with a field per parameter, so that msgspec decodes and checks a payload in one go."""
    fields: list[tuple[str, Any, Any]] = []
    for number, each in enumerate(parameters):
        match each.kind:
            case inspect.Parameter.VAR_KEYWORD:
                continue
            case inspect.Parameter.VAR_POSITIONAL:
                field = msgspec.field(name=each.name, default_factory=list)
            case _ if each.default is inspect.Parameter.empty:
                field = msgspec.field(name=each.name)
            case _:
                field = _defaulted(each)
        fields.append((f"f{number}", types[each.name].type, field))
    has_rest = _only(parameters, inspect.Parameter.VAR_KEYWORD) is not None
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=not has_rest)


def _defaulted(parameter: inspect.Parameter) -> Any:
    # The very object that Python would pass: no copy of a mutable default.
    return msgspec.field(name=parameter.name, default_factory=lambda: parameter.default)
