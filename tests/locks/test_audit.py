"""An audit that could check nothing says so, and is no success."""

import stat
from pathlib import Path
from typing import Any

import pytest

from tests.locks.audit import FOUND, NO_DATA, main, verdict

SKIPPED = {"dependencies": [{"name": "uv", "skip_reason": "not found and could not be audited"}], "fixes": []}
"""What pip-audit says, with exit code 0, where its source of advisories cannot be reached."""
GOOD = {"dependencies": [{"name": "rich", "version": "15.0.0", "vulns": []}], "fixes": []}
BAD = {
    "dependencies": [{"name": "old", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}]
}


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ({"a.txt": SKIPPED}, NO_DATA, "NOT CHECKED: no advisory data could be had"),
        ({"a.txt": None, "b.txt": None}, NO_DATA, "NOT CHECKED: no advisory data could be had"),
        ({"a.txt": GOOD, "b.txt": SKIPPED}, NO_DATA, "NOT ALL CHECKED: no advisory data could be had for uv"),
        ({"a.txt": GOOD, "b.txt": None}, NO_DATA, "NOT ALL CHECKED: no advisory data could be had for b.txt"),
        ({"a.txt": GOOD, "b.txt": BAD}, FOUND, "b.txt: old 1.0: PYSEC-1, mended in 1.1"),
        ({"a.txt": BAD, "b.txt": SKIPPED}, FOUND, "NOT ALL CHECKED"),
        ({"a.txt": GOOD}, 0, "audit: 1 locked versions checked, 0 advisories"),
    ],
)
def test_only_what_was_checked_is_called_good(answers: dict[str, Any], code: int, said: str) -> None:
    found, lines = verdict(answers)

    assert found == code
    assert any(said in line for line in lines)


def test_a_program_that_says_nothing_has_checked_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "pip-audit"
    program.write_text("#!/bin/sh\necho 'No known vulnerabilities found' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "dev.txt").write_text("rich==15.0.0\n")

    assert main([str(program), str(tmp_path)]) == NO_DATA
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "NOT CHECKED" in said.err
