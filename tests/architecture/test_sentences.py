"""The table of moves, the SQL files and the Lua files tell the same story."""

from importlib.resources import files

import pytest

from penstock.core.moves import Move
from penstock.core.transitions import TABLE

FOLDERS = {
    "sqlite": (files("penstock.stores.sqlite") / "sql" / "moves", ".sql"),
    "redis": (files("penstock.stores.redis") / "lua" / "moves", ".lua"),
    "postgres": (files("penstock.stores.postgres") / "sql" / "moves", ".sql"),
}


@pytest.mark.parametrize("move", Move)
@pytest.mark.parametrize("store", FOLDERS)
def test_a_move_file_begins_with_the_sentence_of_its_row(store: str, move: Move) -> None:
    """Word for word, so that the rule is read where it is enforced."""
    folder, ending = FOLDERS[store]
    first, *_ = (folder / f"{move}{ending}").read_text("utf-8").splitlines()

    assert first == f"-- {TABLE[move].sentence}"


@pytest.mark.parametrize("store", FOLDERS)
def test_there_is_a_file_for_every_move_and_none_besides(store: str) -> None:
    """One file, one move."""
    folder, ending = FOLDERS[store]
    found = {each.name.removesuffix(ending) for each in folder.iterdir() if each.name.endswith(ending)}

    assert found == {move.value for move in Move}


def test_every_move_has_one_row() -> None:
    """And every row one sentence of its own."""
    sentences = {row.sentence for row in TABLE.values()}

    assert set(TABLE) == set(Move)
    assert len(sentences) == len(TABLE)
