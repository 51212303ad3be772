"""What the Makefile runs is part of the repository."""

import importlib.util
import re
from pathlib import Path
from typing import Final

import pytest

_MAKEFILE: Final = Path(__file__).parents[2] / "Makefile"
_MODULES: Final = sorted(set(re.findall(r"-m ((?:tests|benchmarks)[\w.]*)", _MAKEFILE.read_text("utf-8"))))


@pytest.mark.parametrize("module", _MODULES)
def test_every_module_that_a_target_runs_exists(module: str) -> None:
    """A folder that git ignores is there for its author alone."""
    assert importlib.util.find_spec(module) is not None
