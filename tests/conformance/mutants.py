"""Stores with one guard dropped, and the hunt for a test that notices it."""

import asyncio
import importlib
import inspect
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from types import ModuleType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.transitions import TABLE, Table
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.testing.conformance import (
    readiness,
    test_batches,
    test_flows,
    test_keys,
    test_leases,
    test_order,
    test_removal,
    test_unique,
)
from penstock.testing.conformance.cases import Case, telling_cases_of
from penstock.testing.conformance.judge import run_cases
from penstock.testing.conformance.parts import Part
from tests.conformance.stores import Kind, Place
from tests.kit.waiting import PATIENCE

MARK: Final = "-- guard: "
SECONDS: Final = PATIENCE
LIKELY: Final = 3
"""So many cases are tried before all the others."""
READIES: Final = "readies"
CONTRACTS: Final[dict[ModuleType, frozenset[Part]]] = {
    test_order: frozenset(),
    test_leases: frozenset(),
    test_batches: frozenset(),
    test_removal: frozenset(),
    test_keys: frozenset({Part.KEYS}),
    test_flows: frozenset({Part.FLOWS}),
    test_unique: frozenset({Part.UNIQUE}),
}
"""Modules whose tests hunt, and the parts that a store needs for them."""
Contract = Callable[..., Awaitable[None]]


class Mutant(msgspec.Struct, frozen=True):
    """A guard that is dropped: of a row of the table, or at a line of a store's file.

    The guard `readies` is the row's own word that keys are looked at again.
    """

    store: str
    move: str
    guard: str
    line: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """What the list of survivors knows it by."""
        return self.store, self.move, self.guard


def memory_mutants() -> list[Mutant]:
    """One for every guard of every row."""
    return [Mutant("memory", move, guard) for move in Move for guard in sorted(TABLE[move].guards)]


def readiness_mutants(store: str) -> list[Mutant]:
    """One for every row after which keys are looked at again."""
    return [Mutant(store, move, READIES) for move, row in TABLE.items() if row.readies]


def mutants_of(store: str, sources: Mapping[str, str]) -> list[Mutant]:
    """One for every line that ends in the name of a guard."""
    return [
        Mutant(store, _stem(name), line.rpartition(MARK)[2].strip(), number)
        for name, text in sorted(sources.items())
        for number, line in enumerate(text.splitlines())
        if MARK in line
    ]


def sql_sources(store: str = "sqlite") -> dict[str, str]:
    """The move files of a store that speaks SQL."""
    folder = files(f"penstock.stores.{store}") / "sql" / "moves"
    return {f"moves/{each.name}": each.read_text("utf-8") for each in folder.iterdir()}


def lua_sources() -> dict[str, str]:
    """The move files of the Redis store, and what they share."""
    folder = files("penstock.stores.redis") / "lua"
    return {
        f"{part}/{each.name}": each.read_text("utf-8")
        for part in ("moves", "shared")
        for each in (folder / part).iterdir()
    }


def mutated(kind: Kind, where: Place, mutants: Sequence[Mutant]) -> Any:
    """A store of this kind without these guards, to be opened."""
    match kind.name:
        case "memory":
            return kind.open(where, table=_table_without(mutants))
        case "sqlite" | "postgres" | "postgres-debian" if all(mutant.guard == READIES for mutant in mutants):
            return kind.open(where, table=_table_without(mutants))
        case "sqlite" | "postgres":
            loaded = importlib.import_module(f"penstock.stores.{kind.name}.sources").load_sources()
            return kind.open(where, sources=loaded | _sources_without(sql_sources(kind.name), mutants))
        case _ if all(mutant.guard == READIES for mutant in mutants):
            return kind.open(where, sources=_deaf(lua_sources(), mutants))
        case _:
            return kind.open(where, sources=_sources_without(lua_sources(), mutants))


def _table_without(mutants: Sequence[Mutant]) -> Table:
    table = dict(TABLE)
    for mutant in mutants:
        row = table[Move(mutant.move)]
        if mutant.guard == READIES:
            table[row.move] = replace(row, readies=False)
            continue
        table[row.move] = replace(row, guards=row.guards - {mutant.guard})
    return table


def _sources_without(sources: Mapping[str, str], mutants: Sequence[Mutant]) -> dict[str, str]:
    dropped = {(mutant.move, mutant.line) for mutant in mutants}
    return {
        name: "\n".join(
            line for number, line in enumerate(text.splitlines()) if (_stem(name), number) not in dropped
        )
        for name, text in sources.items()
    }


def _deaf(sources: Mapping[str, str], mutants: Sequence[Mutant]) -> dict[str, str]:
    """Scripts that do not look at the key again after these moves."""
    moves = {mutant.move for mutant in mutants}
    led = "touch(job[KEY])"
    deaf = {}
    for name, text in sources.items():
        if name == "shared/records.lua":
            assert text.count(led) == 1, "one place leads jobs from state to state"
            listed = ", ".join(f"{move} = true" for move in sorted(moves))
            text = text.replace(led, f"if not ({{{listed}}})[move] then {led} end")
        elif name.startswith("moves/") and _stem(name) in moves:
            text = "\n".join(line for line in text.splitlines() if not line.strip().startswith("touch("))
        deaf[name] = text
    return deaf


async def killer(store: Store, kind: Kind, mutants: Sequence[Mutant], seconds: float = SECONDS) -> str | None:
    """What notices that these guards are gone; None when nothing does."""
    try:
        async with asyncio.timeout(seconds):
            if all(mutant.guard == READIES for mutant in mutants):
                return await _readiness_killer(store, mutants)
            return await _guard_killer(store, kind, mutants)
    except TimeoutError:
        return f"it hangs: not through after {seconds:g} s"
    except Exception as error:  # noqa: BLE001 (a store that breaks is noticed, however it breaks)
        return f"{type(error).__name__}: {error}"


async def _guard_killer(store: Store, kind: Kind, mutants: Sequence[Mutant]) -> str | None:
    wrong = await run_cases(store, await _likely_cases(kind, mutants), to_the_end=False)
    if wrong:
        return f"matrix: {wrong[0]}"
    moves = {mutant.move for mutant in mutants}
    for move in [each for each in Move if each in moves]:
        wrong = await run_cases(store, telling_cases_of(move, kind.moves), to_the_end=False)
        if wrong:
            return f"matrix: {wrong[0]}"
    for name, contract in _contracts(kind):
        fault = await _fault_of(store, contract)
        if fault:
            return f"{name}: {fault}"
    return None


async def _likely_cases(kind: Kind, mutants: Sequence[Mutant]) -> list[Case]:
    """A few that notice when the reference lacks the same guard: it is quicker than any store."""
    if len(mutants) > 1 or mutants[0].move not in set(Move):
        return []
    reference = MemoryStore(table=_table_without(mutants))
    found: list[Case] = []
    for case in telling_cases_of(Move(mutants[0].move), kind.moves):
        if len(found) < LIKELY and await _is_noticed(reference, case):
            found.append(case)
    return found


async def _is_noticed(store: Store, case: Case) -> bool:
    try:
        return bool(await run_cases(store, [case]))
    except Exception:  # noqa: BLE001 (as above)
        return True


async def _readiness_killer(store: Store, mutants: Sequence[Mutant]) -> str | None:
    for move in [Move(mutant.move) for mutant in mutants]:
        for path in readiness.PATHS[move]:
            fault = await _fault_of(store, partial(readiness.judge, path=path))
            if fault:
                return f"{path.__name__}: {fault}"
    return None


async def _fault_of(store: Store, contract: Contract) -> str | None:
    arguments = {"store": store, "queue": QueueRef(f"t{secrets.token_hex(4)}", "q")}
    wanted = [name for name in inspect.signature(contract).parameters if name in arguments]
    try:
        await contract(**{name: arguments[name] for name in wanted})
    except AssertionError as error:
        return str(error).partition("\n")[0] or "failed"
    return None


def _contracts(kind: Kind) -> Iterator[tuple[str, Contract]]:
    """The tests that need a store and a queue only."""
    for module, parts in CONTRACTS.items():
        if parts <= kind.parts:
            yield from _tests_in(module)


def _tests_in(module: ModuleType) -> Iterator[tuple[str, Contract]]:
    for name, value in vars(module).items():
        if name.startswith("test_") and set(inspect.signature(value).parameters) <= {"store", "queue"}:
            yield name, value


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]
