"""Where this user may make cgroups, a confined process has one: it ends by it, and is limited in sum."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.core.errors import ConfigError
from penstock.sandbox import available, cgroups
from penstock.sandbox.cgroups import Cgroup
from penstock.sandbox.confine import prepare
from penstock.sandbox.keeper import END
from penstock.sandbox.permissions import Permissions
from penstock.sandbox.plan import Plan
from tests.sandbox.line import Line, ended, haunt, rest, without_namespaces


@pytest.fixture(scope="module")
def cgroup() -> Cgroup:
    """Where they are made here."""
    found = available.cgroup()
    if found is None:
        pytest.skip(f"no cgroups here: {cgroups.find()}")
    return found


@pytest.fixture(scope="module")
def plan(cgroup: Cgroup) -> Plan:
    """For a process that may touch nothing."""
    return replace(prepare(Permissions(processes=4, memory=64 << 20)), cgroup=cgroup)


def of(cgroup: Cgroup, keeper: int) -> Path:
    """The folder of the cgroup of what this process keeps."""
    return Path(cgroup.folder, f"penstock-{keeper}")


@pytest.mark.parametrize("has_namespaces", [True, False])
def test_a_confined_process_and_its_daemons_have_a_cgroup_for_as_long_as_they_live(
    line: Line, cgroup: Cgroup, plan: Plan, has_namespaces: bool
) -> None:
    """Their keeper is not in it."""
    if has_namespaces and not plan.has_namespaces:
        pytest.skip("this user cannot have namespaces")
    kept = plan if has_namespaces else without_namespaces(plan)
    keeper = line.start(lambda say: kept.apply([say]), haunt)
    line.hears(len(b"rd"))
    within = (of(cgroup, keeper) / "cgroup.procs").read_text().split()
    os.kill(keeper, END)

    assert ended(keeper) == -signal.SIGKILL
    assert line.read() == b""
    assert len(within) >= 2
    assert str(keeper) not in within
    assert not of(cgroup, keeper).exists()


def test_what_a_killed_keeper_left_ends_by_its_cgroup(line: Line, cgroup: Cgroup, plan: Plan) -> None:
    """The last resort where there are no namespaces."""
    kept = without_namespaces(plan)
    keeper = line.start(lambda say: kept.apply([say]), haunt)
    line.hears(len(b"rd"))
    os.kill(keeper, signal.SIGKILL)
    ended(keeper)
    cgroup.of(keeper).kill()

    assert line.read() == b""
    while of(cgroup, keeper).exists():
        # The last of them may not have left it yet.
        cgroup.tidy()


def test_root_makes_none_where_none_were_given_to_it(cgroup: Cgroup) -> None:
    """It could write everywhere: systemd marks what it hands over."""
    if os.geteuid():
        pytest.skip("only root can write everywhere")
    folder = of(cgroup, os.getpid())
    folder.mkdir()
    try:
        with pytest.raises(ConfigError, match="not delegated"):
            cgroups.attempt(folder)
        os.setxattr(folder, "trusted.delegate", b"1")
        assert cgroups.attempt(folder).folder == str(folder)
    finally:
        folder.rmdir()


def fork_much(say: int) -> None:
    """Five processes at once, this one included."""
    for _ in range(4):
        if os.fork() == 0:
            rest()
    os.write(say, b"worked")


def take_much(say: int) -> None:
    """80 MiB, half of them in another process."""
    taken = [bytearray(b"x") * (40 << 20)]
    child = os.fork()
    if child == 0:
        taken.append(bytearray(b"x") * (40 << 20))
        os._exit(0)
    os.waitpid(child, 0)
    os.write(say, b"worked")


@pytest.mark.parametrize(("controller", "act"), [("pids", fork_much), ("memory", take_much)])
def test_a_controller_limits_in_sum(
    line: Line, cgroup: Cgroup, controller: str, act: Callable[[int], None]
) -> None:
    """All processes together, where other limits see each for itself."""
    if controller not in cgroup.controllers:
        pytest.skip(f"{cgroup.folder} has no controller {controller}")
    group = cgroup.of(os.getpid())
    group.make(cgroup.limits(memory=64 << 20, processes=4))
    pid = line.start(lambda _: group.enter(), act)
    ended(pid)
    group.kill()
    said = b"".join(iter(line.read, b""))
    group.remove()
    assert said == b""
