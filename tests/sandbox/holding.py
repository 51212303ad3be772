"""Holds as much memory as it can where `memory` does not count it, and prints how much that was."""

import os
import sys

from penstock.sandbox.confine import prepare
from penstock.sandbox.permissions import Permissions
from tests.sandbox.techniques.buffers import held


def main() -> None:
    """Confined by so many bytes of `memory`, up to so many bytes: `<folder> <memory> <most>`."""
    _, memory, most = sys.argv[1:]
    plan = prepare(Permissions(memory=int(memory)))
    hear, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        plan.apply([say])
        os.write(say, str(held(int(most), is_passed=True)).encode())
        os._exit(0)
    os.close(say)
    print(os.read(hear, 100).decode())
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
