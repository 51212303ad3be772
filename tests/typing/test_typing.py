"""The public face as type checkers see it: wrong calls are errors, and results have their type."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

# Not a module: its errors are meant, and would be found by every check of the tests.
CASES = Path(__file__).with_name("cases.txt")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def said() -> dict[int, list[str]]:
    """What mypy says about each line."""
    # Not a file of its own: what mypy keeps of it would name the folder of an earlier run.
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "-c", CASES.read_text()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines: dict[int, list[str]] = {}
    for each in done.stdout.splitlines():
        found = re.fullmatch(r"<string>:(\d+): (error|note): (.*)", each)
        assert found, done.stdout + done.stderr
        lines.setdefault(int(found[1]), []).append(f"{found[2]}: {found[3]}")
    assert lines, done.stderr
    return lines


def lines_with(mark: str) -> list[tuple[int, str]]:
    found = []
    for number, line in enumerate(CASES.read_text().splitlines(), 1):
        code, _, wanted = line.partition(f"  # {mark}: ")
        if wanted and code.strip():
            found.append((number, wanted))
    return found


@pytest.mark.parametrize(("number", "code"), lines_with("E"))
def test_a_wrong_call_is_an_error(said: dict[int, list[str]], number: int, code: str) -> None:
    assert any(each.startswith("error: ") and each.endswith(f"[{code}]") for each in said.get(number, []))


@pytest.mark.parametrize(("number", "kind"), lines_with("R"))
def test_a_value_has_its_type(said: dict[int, list[str]], number: int, kind: str) -> None:
    revealed = [each for each in said.get(number, []) if "Revealed type" in each]

    assert [each.replace("builtins.", "") for each in revealed] == [f'note: Revealed type is "{kind}"']


def test_everything_else_is_right(said: dict[int, list[str]]) -> None:
    marked = {number for number, _ in lines_with("E") + lines_with("R")}

    assert {number: each for number, each in said.items() if number not in marked} == {}
