"""Asks for permissions, strictly and as far as possible, and prints the answers."""

import json
from typing import Literal

from penstock.core.errors import ConfigError
from penstock.sandbox.available import means
from penstock.sandbox.confine import prepare
from penstock.sandbox.permissions import Permissions

Mode = Literal["strict", "best-effort"]


def ask(mode: Mode) -> str:
    """The gaps, or the error."""
    try:
        return " | ".join(prepare(Permissions(run=["/bin/echo"]), mode).gaps)
    except ConfigError as error:
        return f"ConfigError: {error}"


if __name__ == "__main__":
    seen = {each.name: each.is_there for each in means()}
    print(json.dumps({"strict": ask("strict"), "best-effort": ask("best-effort"), "means": seen}))
