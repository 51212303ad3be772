"""The url of a SQLite store: the path of its file and its durability."""

from typing import Any
from urllib.parse import parse_qsl, unquote

from penstock.core.errors import ConfigError
from penstock.core.store_url import shown_option
from penstock.stores.registry import EXAMPLES
from penstock.stores.values import Durability


def path_of(url: str) -> str:
    """The path of the file that a sqlite:// url names; ConfigError when it names none."""
    return parse(url)[0]


def parse(url: str) -> tuple[str, dict[str, Any]]:
    """The path of the file and the settings that the url carries; ConfigError for anything else."""
    # A # and an @ may be part of a file's name.
    place, _, query = url.removeprefix("sqlite://").partition("?")
    path, shown = unquote(place.removeprefix("/")), f"sqlite://{place}"
    if not place.startswith("/"):
        raise ConfigError(f"sqlite://…: path: found none, wanted a file, such as {EXAMPLES['sqlite']}")
    if not path or path.endswith("/") or "\0" in path:
        raise ConfigError(f"{shown}: path: wanted a file, such as {EXAMPLES['sqlite']}")
    if path == ":memory:":
        raise ConfigError(f"{shown}: a store in memory is memory://")
    settings: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "durability" or value not in {Durability.POWER, Durability.SERVER}:
            # The value of another option is not repeated: it may be a key or a password.
            found = f"durability={value}" if name == "durability" else f"{shown_option(name, query)}=…"
            raise ConfigError(f"{shown}: found {found!r}, wanted durability=power or durability=server")
        settings[name] = Durability(value)
    return path, settings
