"""Every store is built alike: the same modules in each folder, and classes that hold what they need."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
import pytest

import penstock.stores
from penstock.stores import protocol

STORES: Final = {
    "memory": "MemoryStore",
    "sqlite": "SqliteStore",
    "postgres": "PostgresStore",
    "redis": "RedisStore",
    "remote": "RemoteStore",
}
PARTS: Final = {
    "moves": "Moves",
    "flows": "Flows",
    "schedules": "Schedules",
    "reads": "Reads",
    "upkeep": "Upkeep",
    "queues": "Queues",
    "key_value": "KeyValue",
    "events": "Events",
    "readers": "Readers",
    "notifier": "Notifier",
    "clock": "Clock",
    "quarantine": "Quarantine",
    "health": "Health",
}
"""The module of each part, and how its class is called behind the name of the store."""
MODULES: Final = frozenset({"store", "backend", "enqueue", "claims", *PARTS})
_FOLDER: Final = Path(penstock.stores.__path__[0])


def stores() -> list[Any]:
    """The name of each store."""
    return [pytest.param(name, id=name) for name in STORES]


def modules_of(store: str) -> list[ModuleType]:
    """All modules of a store's folder."""
    root = _FOLDER / store
    names = [
        ".".join(path.relative_to(_FOLDER.parent.parent).with_suffix("").parts) for path in root.rglob("*.py")
    ]
    return [importlib.import_module(name.removesuffix(".__init__")) for name in sorted(names)]


def is_value(kind: type) -> bool:
    """True for what may be inherited from: protocols, errors and records."""
    return getattr(kind, "_is_protocol", False) or issubclass(kind, (BaseException, msgspec.Struct))


@pytest.mark.parametrize("store", stores())
def test_every_store_has_the_same_modules(store: str) -> None:
    there = {path.stem for path in (_FOLDER / store).iterdir() if path.suffix == ".py" or path.is_dir()}

    assert sorted(MODULES - there) == []


@pytest.mark.parametrize("store", stores())
def test_each_part_is_a_class_of_its_module(store: str) -> None:
    prefix = STORES[store].removesuffix("Store")
    missing = [
        f"{module}.{prefix}{name}"
        for module, name in PARTS.items()
        if not inspect.isclass(
            getattr(importlib.import_module(f"penstock.stores.{store}.{module}"), f"{prefix}{name}", None)
        )
    ]

    assert missing == []


@pytest.mark.parametrize("store", stores())
def test_no_class_of_a_store_inherits_from_another_of_the_project(store: str) -> None:
    """Code is shared by holding what has it."""
    found = [
        f"{module.__name__}.{kind.__name__}({base.__name__})"
        for module in modules_of(store)
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__ and not is_value(kind)
        for base in kind.__bases__
        if base.__module__.startswith("penstock") and not is_value(base)
    ]

    assert found == []


@pytest.mark.parametrize("store", stores())
def test_the_parts_of_a_store_can_be_replaced(store: str) -> None:
    """They are plain attributes: a test puts another one in the place of one."""
    kind = getattr(importlib.import_module(f"penstock.stores.{store}.store"), STORES[store])
    tree = ast.parse(inspect.getsource(kind))
    assigned = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    parts = {
        name
        for each in protocol.Store.__mro__
        for name, found in vars(each).items()
        if isinstance(found, property)
    }

    assert sorted(parts - assigned) == []
    assert [name for name in parts if hasattr(kind, name)] == []


@pytest.mark.parametrize("store", stores())
def test_a_store_imports_neither_spark_nor_arrow(store: str) -> None:
    found = [
        f"{path.name}: {name}"
        for path in (_FOLDER / store).rglob("*.py")
        for name in _imported(path)
        if name.partition(".")[0] in {"pyspark", "pyarrow"}
    ]

    assert found == []


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
