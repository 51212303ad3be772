"""`import penstock` is light, and every public name is there when it is asked for."""

import subprocess
import sys

import pytest

import penstock

HEAVY = [
    "sqlite3",
    "redis",
    "hiredis",
    "valkey",
    "psycopg",
    "typer",
    "rich",
    "pydantic",
    "pyspark",
    "uvloop",
    "uvicorn",
    "jwt",
    "penstock.service",
    "pytest",
]


def fresh(code: str) -> str:
    """What some code prints in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "code",
    [
        "import penstock",
        "from penstock import Penstock; Penstock('redis://localhost').queue('mail')",
        "import penstock.testing.fixtures",
    ],
)
def test_no_driver_is_imported_before_it_is_needed(code: str) -> None:
    heavy = HEAVY[:-1] if "fixtures" in code else HEAVY
    loaded = fresh(f"import sys; {code}; print(*sys.modules)").split()

    assert [name for name in heavy if name in loaded] == []


def test_the_pytest_plugin_imports_nothing_of_penstock_but_itself() -> None:
    loaded = fresh("import sys, penstock.testing.fixtures; print(*sys.modules)").split()

    assert [name for name in loaded if name.startswith("penstock.")] == [
        "penstock.testing",
        "penstock.testing.fixtures",
    ]


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(penstock, name) is not None
    assert name in dir(penstock)


def test_an_unknown_name_is_an_attribute_error() -> None:
    for name in ("Nope", "NopeError"):
        with pytest.raises(AttributeError, match=name):
            getattr(penstock, name)
