"""The SQL files of this store: one per move, cut into named steps."""

from collections.abc import Mapping
from importlib.resources import files

Steps = dict[str, str]


def load_sources() -> dict[str, str]:
    """The text of every SQL file, by its path below `sql`: `moves/claim.sql`."""
    root = files("penstock.stores.sqlite") / "sql"
    return {
        f"{folder.name}/{file.name}": file.read_text("utf-8")
        for folder in root.iterdir()
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }


def load_migrations() -> list[str]:
    """The text of every migration, oldest first."""
    root = files("penstock.stores.sqlite") / "migrations"
    named = sorted((file.name, file) for file in root.iterdir() if file.name.endswith(".sql"))
    return [file.read_text("utf-8") for _, file in named]


def cut(sources: Mapping[str, str]) -> dict[str, Steps]:
    """The steps of every file; a file without steps has one, called `all`."""
    return {name: _steps(text) for name, text in sources.items()}


def _steps(text: str) -> Steps:
    steps: dict[str, list[str]] = {}
    name = "all"
    for line in text.splitlines():
        if line.startswith("-- step: "):
            name = line.removeprefix("-- step: ").strip()
        elif not line.startswith("--"):
            steps.setdefault(name, []).append(line)
    return {step: body for step, lines in steps.items() if (body := "\n".join(lines).strip())}
