"""Tests of the tests: every guard of every store is dropped, one at a time, and some test has to notice.

A guard that nothing misses stands in `survivors.py` with the reason; `make mutants` prints the whole table.
"""

from collections.abc import Sequence

import pytest

from penstock.core.transitions import TABLE
from penstock.testing.conformance.parts import Part
from tests.conformance.having import kinds_having, on, served
from tests.conformance.mutants import (
    SECONDS,
    Mutant,
    killer,
    lua_sources,
    memory_mutants,
    mutants_of,
    mutated,
    readiness_mutants,
    sql_sources,
)
from tests.conformance.stores import SECOND_SERVERS, STORES, Kind, Place
from tests.conformance.survivors import SURVIVORS

MUTANTS = {
    "memory": memory_mutants(),
    "sqlite": mutants_of("sqlite", sql_sources()),
    "valkey": mutants_of("redis", lua_sources()),
    "postgres": mutants_of("postgres", sql_sources("postgres")),
}
READIES = {kind.name: readiness_mutants(kind.name) for kind in kinds_having(Part.KEYS)}
KINDS = [each for each in STORES if each.name in MUTANTS]


@on(KINDS)
async def test_every_dropped_guard_is_noticed(kind: Kind, where: Place) -> None:
    """Unless it is known why it changes nothing."""
    survivors = await _survivors(kind, where, MUTANTS[kind.name])

    assert not survivors, "nothing misses these guards:\n" + "\n".join(survivors)


@served(Part.KEYS)
async def test_every_move_that_no_longer_looks_at_its_key_is_noticed(kind: Kind, where: Place) -> None:
    """A key that could be served and is not, or is served and could not be."""
    survivors = await _survivors(kind, where, READIES[kind.name])

    assert not survivors, "nothing misses it after these moves:\n" + "\n".join(survivors)


@on(KINDS)
async def test_a_guard_that_nothing_misses_is_still_not_missed(kind: Kind, where: Place) -> None:
    """All of them are dropped at once, which is quicker and no kinder to them."""
    for mutants in (MUTANTS[kind.name], READIES.get(kind.name, [])):
        listed = [mutant for mutant in mutants if mutant.key in SURVIVORS]
        if not listed:
            continue
        async with mutated(kind, where, listed) as store:
            # Nothing is to be noticed: this one goes through all of it.
            noticed = await killer(store, kind, listed, 4 * SECONDS)
        for mutant in listed:
            print(_row(mutant, f"survived because {SURVIVORS[mutant.key]}"))

        assert noticed is None, f"a listed survivor is noticed by now: {noticed}"


async def _survivors(kind: Kind, where: Place, mutants: Sequence[Mutant]) -> list[str]:
    """Which of these nothing notices and nobody explains."""
    survivors: list[str] = []
    for mutant in mutants:
        if mutant.key in SURVIVORS:
            continue
        async with mutated(kind, where, [mutant]) as store:
            found = await killer(store, kind, [mutant])
        print(_row(mutant, f"killed by {found}" if found else "SURVIVED"))
        if found is None:
            survivors.append(f"{mutant.store} {mutant.move} {mutant.guard}, line {mutant.line + 1}")
    return survivors


@pytest.mark.parametrize("store", ["sqlite", "redis", "postgres"])
def test_every_guard_of_the_table_is_marked_in_the_file_of_its_move(store: str) -> None:
    """So that none is left out of the mutants."""
    found = {
        (mutant.move, mutant.guard)
        for mutants in MUTANTS.values()
        for mutant in mutants
        if mutant.store == store
    }
    wanted = {(move.value, guard.value) for move, row in TABLE.items() for guard in row.guards}

    assert wanted - found == set()


def test_every_listed_survivor_is_a_guard_that_is_there() -> None:
    """A reason for something that is gone explains nothing; a second server need not be installed."""
    mutants = [*MUTANTS.values(), *READIES.values()]
    keys = {mutant.key for some in mutants for mutant in some}
    away = set(SECOND_SERVERS) - {kind.name for kind in STORES}

    assert {key for key in SURVIVORS if key[0] not in away} - keys == set()


def _row(mutant: Mutant, said: str) -> str:
    where = f"{mutant.move}:{mutant.line + 1}" if mutant.line else mutant.move
    return f"{mutant.store:8} {where:16} {mutant.guard:8} {said[:150]}"
