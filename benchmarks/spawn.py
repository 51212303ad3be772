"""Starts measured processes and reads what they found."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
LONGEST: Final = 900.0
"""Seconds after which a measured process counts as stuck."""

Figures = dict[str, float]


class Failed(Exception):
    """A measured process did not do its part."""


def run(
    module: str,
    role: str,
    *,
    python: str | Path = sys.executable,
    environment: Mapping[str, str] | None = None,
    **keywords: Any,
) -> Figures:
    """Run a role to its end in a process of its own, if need be by the Python of another environment."""
    return run_command(_command(module, role, keywords, python), environment=environment)


def run_command(
    command: list[str], *, folder: Path = ROOT, environment: Mapping[str, str] | None = None
) -> Figures:
    """Run a command that prints what it found as a last line of JSON."""
    given = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)}: not done after {LONGEST:.0f} s") from None
    return _figures(command, done.returncode, done.stdout, done.stderr)


class Service:
    """A process that says `ready`, works until it is told to stop, and then says what it saw."""

    def __init__(self, module: str, role: str, keywords: dict[str, Any]) -> None:
        self._command = _command(module, role, keywords)
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def await_ready(self) -> None:
        """Wait until it works."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            self.kill()
            _, said = self._process.communicate()
            raise Failed(f"{' '.join(self._command)}: not ready\n{said}")

    def stop(self) -> Figures:
        """Tell it to stop, and get what it saw."""
        out, said = self._process.communicate("stop\n", timeout=60)
        return _figures(self._command, self._process.returncode, out, said)

    def kill(self) -> None:
        """End it, unless it has ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=10)


@contextmanager
def service(module: str, role: str, **keywords: Any) -> Iterator[Service]:
    """A service that is ready; it does not outlive the block."""
    started = Service(module, role, keywords)
    try:
        started.await_ready()
        yield started
    finally:
        started.kill()


def _command(
    module: str, role: str, keywords: dict[str, Any], python: str | Path = sys.executable
) -> list[str]:
    return [str(python), "-m", "benchmarks.child", module, role, json.dumps(keywords)]


def _figures(command: list[str], code: int, out: str, said: str) -> Figures:
    if code != 0 or not out.strip():
        raise Failed(f"{' '.join(command)}: ended with {code}\n{said}")
    found: Figures = json.loads(out.strip().splitlines()[-1])
    return found
