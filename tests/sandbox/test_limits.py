"""What `memory` does not count is bounded by the number of descriptors."""

from pathlib import Path

import pytest

from penstock.sandbox.limits import descriptors
from tests.sandbox.conftest import Run
from tests.sandbox.crew import crews

MEMORY = 64 << 20
BOUND = 58 << 20
"""Bytes in buffers of a process with so much memory, as the documentation says."""
BUFFER = Path("/proc/sys/net/core/wmem_default")
USUAL_BUFFER = 212_992
DOCS = Path(__file__).parents[2] / "docs" / "explanation" / "sandbox.md"


@pytest.mark.parametrize(
    ("memory", "most"),
    [(None, 1024), (16 << 20, 64), (64 << 20, 64), (256 << 20, 256), (1 << 30, 1024), (1 << 40, 1024)],
)
def test_the_number_of_descriptors_follows_memory(memory: int | None, most: int) -> None:
    """One for each MiB, within bounds."""
    assert descriptors(memory) == most


@pytest.mark.parametrize("crew", crews())
def test_sockets_hold_no_more_than_is_documented(run: Run, crew: str) -> None:
    """Neither those that are open nor those that were passed on and are not."""
    if BUFFER.exists() and int(BUFFER.read_text()) > USUAL_BUFFER:
        pytest.skip("the system's setting gives sockets larger buffers")

    held = int(run(crew, "tests.sandbox.holding", str(MEMORY), str(4 * BOUND)))

    assert 0 < held <= BOUND


def test_the_bound_is_documented() -> None:
    """In the words of the page on what the sandbox does not stop."""
    text = DOCS.read_text()
    assert f"{BOUND >> 20} MiB with `memory={MEMORY >> 20} << 20`" in text
