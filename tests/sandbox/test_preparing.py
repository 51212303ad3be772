"""What cannot be enforced is refused before anything runs, with the reason and what to do."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.core.errors import ConfigError, OptionError
from penstock.sandbox import landlock, linux
from penstock.sandbox.confine import prepare
from penstock.sandbox.landlock import Rule
from penstock.sandbox.permissions import Permissions
from penstock.sandbox.plan import Plan
from tests.sandbox.conftest import Start
from tests.sandbox.crew import crews


def within(plan: Plan, act: Callable[[], object]) -> str:
    """What a confined process makes of it: `fine` or the name of the error."""
    hear, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "fine"
        try:
            plan.apply([say])
            act()
        except BaseException as error:  # noqa: BLE001 (whatever it is, it is told)
            said = type(error).__name__
        os.write(say, said.encode())
        os._exit(0)
    os.close(say)
    said = os.read(hear, 100).decode()
    os.close(hear)
    os.waitpid(pid, 0)
    return said


@pytest.fixture(scope="module")
def answers(start: Start) -> Any:
    """What each crew is told."""
    asking = {crew: start(crew, "tests.sandbox.asking") for crew in (*crews(), "old")}
    return lambda crew: json.loads(asking[crew].result())


@pytest.mark.parametrize("field", ["read", "write"])
def test_a_path_that_is_not_there_is_named(field: str) -> None:
    """A typing error would otherwise show in a job, at night."""
    with pytest.raises(OptionError, match=rf"permissions\.{field}.*/no/such/path"):
        prepare(msgspec.convert({field: ["/no/such/path"]}, Permissions))


@pytest.mark.parametrize("path", ["/proc/self", "/proc/self/maps", "/proc/1/environ"])
def test_files_of_one_process_cannot_be_given(path: str) -> None:
    """Numbers of processes mean something else inside."""
    with pytest.raises(OptionError, match="of no process"):
        prepare(Permissions(read=[path]))


def test_a_program_that_is_not_there_is_named() -> None:
    """As a path is."""
    with pytest.raises(OptionError, match=r"permissions\.run.*no-such-program"):
        prepare(Permissions(run=["no-such-program"]))


def test_a_script_is_refused_with_the_name_of_its_interpreter(place: Path) -> None:
    """It is the interpreter that would be started."""
    script = place / "script"
    script.write_text("#!/bin/sh -e\ntrue\n")
    script.chmod(0o755)
    with pytest.raises(OptionError, match="name /bin/sh instead"):
        prepare(Permissions(run=[str(script)]))


def test_a_program_that_the_task_could_write_is_refused(place: Path) -> None:
    """It would be another program soon."""
    folder = place / "writable"
    folder.mkdir()
    folder.chmod(0o777)
    shutil.copy("/bin/true", folder / "tool")
    with pytest.raises(OptionError, match="where the task cannot write"):
        prepare(Permissions(write=[str(folder)], run=[str(folder / "tool")]))


def test_a_folder_that_is_closed_to_the_user_is_named(place: Path) -> None:
    """Root's tasks are nobody's, who may not read all that root may."""
    closed = place / "closed"
    closed.mkdir(exist_ok=True)
    closed.chmod(0o700 if os.geteuid() == 0 else 0)
    with pytest.raises(ConfigError, match=rf"{closed} cannot be read by uid"):
        prepare(Permissions(read=[str(closed)]))
    closed.chmod(0o755 if os.geteuid() == 0 else 0o500)
    with pytest.raises(ConfigError, match=rf"{closed} cannot be written by uid"):
        prepare(Permissions(write=[str(closed)]))


def test_elsewhere_than_on_linux_permissions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words that say why."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigError, match="enforced by the Linux kernel, and this is darwin"):
        prepare(Permissions())


def test_a_kernel_that_cannot_enforce_is_refused(answers: Any) -> None:
    """Unless as much as possible is enough; then it is said what is missing."""
    answer = answers("old")
    assert answer["means"] == {
        "system": True,
        "seccomp": True,
        "landlock": False,
        "namespaces": False,
        "cgroup": False,
        "user": True,
    }
    strict, gaps = answer["strict"], answer["best-effort"]
    assert strict.startswith("ConfigError: these permissions cannot be enforced here: ")
    for gap in ("files: ", "run: "):
        assert gap in strict
        assert gap in gaps


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have lost its capabilities")
def test_root_that_cannot_become_another_user_is_told_what_is_missing(start: Start) -> None:
    """And goes on as it is, if as much as possible is enough."""
    answer = json.loads(start("root-powerless", "tests.sandbox.asking").result())
    gap = "user: root without CAP_SETGID and CAP_SETUID cannot become nobody; "
    assert answer["strict"].startswith(f"ConfigError: these permissions cannot be enforced here: {gap}")
    assert answer["best-effort"].startswith(gap)
    assert answer["means"]["user"] is False


@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
def test_a_path_that_cannot_be_reached_without_namespaces_is_named() -> None:
    """It may be one of the interpreter's, which nobody wrote down."""
    with pytest.raises(ConfigError, match=r"/no/such/path cannot be reached by uid .*: No such file"):
        landlock.restrict([Rule("/no/such/path", landlock.READ)], landlock.version())


@pytest.mark.parametrize("crew", crews())
def test_this_kernel_enforces_all_for_every_user(answers: Any, crew: str) -> None:
    """With namespaces or without."""
    answer = answers(crew)
    assert answer["strict"] == answer["best-effort"] == ""
    assert answer["means"]["namespaces"] is not crew.endswith("contained")


def test_a_plan_can_be_sent() -> None:
    """It is plain data."""
    plan = prepare(Permissions(env=["HOME"]))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_code_is_readable_and_what_lies_beside_it_is_not(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings with passwords often lie next to the packages."""
    folder = place / "app"
    (folder / "sandbox_shop" / "deep").mkdir(parents=True, exist_ok=True)
    for name in (
        "sandbox_shop/__init__.py",
        "sandbox_shop/deep/late.py",
        "sandbox_single.py",
        ".env",
        "shop.db",
    ):
        (folder / name).write_text("VALUE = 1")
    monkeypatch.syspath_prepend(str(folder))
    plan = prepare(Permissions())
    assert within(plan, lambda: __import__("sandbox_shop.deep.late")) == "fine"
    assert within(plan, lambda: __import__("sandbox_single")) == "fine"
    for name in (".env", "shop.db"):
        assert within(plan, (folder / name).read_text) in ("PermissionError", "FileNotFoundError")


def test_everything_may_be_read_if_that_is_what_is_said(place: Path) -> None:
    """The root stands for all that is in it; to write is another matter."""
    (place / "any").write_text("x")
    plan = prepare(Permissions(read=["/"]))
    assert within(plan, (place / "any").read_text) == "fine"
    assert within(plan, Path("/etc/passwd").read_text) == "fine"
    assert within(plan, lambda: (place / "any").write_text("y")) in ("PermissionError", "OSError")


def test_a_path_below_another_keeps_its_own_rights(place: Path) -> None:
    """A folder to write in one to read."""
    outer = place / "outer"
    (outer / "inner").mkdir(parents=True, exist_ok=True)
    for folder in (outer, outer / "inner"):
        folder.chmod(0o777)
    plan = prepare(Permissions(read=[str(outer)], write=[str(outer / "inner")]))
    assert within(plan, lambda: (outer / "inner" / "new").write_text("x")) == "fine"
    assert within(plan, lambda: (outer / "new").write_text("x")) in ("PermissionError", "OSError")


def test_a_path_that_has_become_a_link_is_refused(place: Path) -> None:
    """Another task may be allowed to write above it."""
    outer = place / "shared"
    (outer / "in").mkdir(parents=True)
    plan = prepare(Permissions(read=[str(outer / "in")]))
    (outer / "in").rmdir()
    (outer / "in").symlink_to("/etc")
    assert within(plan, (outer / "in" / "passwd").read_text) in ("ConfigError", "OSError")
    with pytest.raises(OSError, match="symbolic links"):
        linux.hold(str(outer / "in"))


def test_what_the_app_holds_of_a_variable_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are immutable: a global and a literal may be the very object that was in the environment."""
    monkeypatch.setitem(os.environb, b"SANDBOX_MODE", b"production-mode")
    held = os.environb[b"SANDBOX_MODE"]

    def look() -> None:
        assert held == bytes.fromhex("70726f64756374696f6e2d6d6f6465")
        assert "SANDBOX_MODE" not in os.environ

    assert within(prepare(Permissions()), look) == "fine"
