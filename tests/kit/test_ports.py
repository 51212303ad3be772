"""Ports of servers under test are owned: no two processes on a machine draw the same one."""

import subprocess
import sys

from tests.kit.ports import free_port
from tests.kit.waiting import PATIENCE

DRAWS = "from tests.kit.ports import free_port\nprint(*[free_port() for _ in range(120)])\ninput()"


def test_processes_that_draw_ports_at_the_same_time_draw_different_ones() -> None:
    """All of them live until the last one has drawn, as the processes of two runs do."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DRAWS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    lines = [process.stdout.readline() for process in processes if process.stdout is not None]
    drawn = [int(port) for line in lines for port in line.split()] + [free_port() for _ in range(120)]
    for process in processes:
        process.communicate("\n", timeout=PATIENCE)

    assert len(drawn) == len(set(drawn)) == 5 * 120
