"""Curl for machines without it: as much of it as the pages use."""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Final

import httpx

from tests.docs.pages import ROOT

_PAUSE: Final = 0.5


def path_with_curl(folder: Path) -> str:
    """The PATH of commands that use curl; the installed one where there is one."""
    path = os.environ["PATH"]
    if shutil.which("curl") is not None:
        return path
    program = folder / "bin" / "curl"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m tests.kit.curl "$@"\n', "utf-8"
    )
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{path}"


def main(arguments: list[str]) -> int:
    """Send one request, again while nobody listens; the answer's body goes to stdout."""
    parser = argparse.ArgumentParser("curl")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-S", action="store_true")
    parser.add_argument("--retry", type=int, default=0)
    parser.add_argument("--retry-connrefused", action="store_true")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d")
    parser.add_argument("url")
    wish = parser.parse_args(arguments)
    headers = dict(line.split(": ", 1) for line in wish.H)
    for left in range(wish.retry, -1, -1):
        try:
            method = "GET" if wish.d is None else "POST"
            answer = httpx.request(method, wish.url, headers=headers, content=wish.d, timeout=None)
        except httpx.ConnectError as error:
            if not left or not wish.retry_connrefused:
                sys.stderr.write(f"curl: {error}\n")
                return 7
            time.sleep(_PAUSE)  # real time: curl pauses before it tries again
        else:
            sys.stdout.write(answer.text)
            return 0
    return 7


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
