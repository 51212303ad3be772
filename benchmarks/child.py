"""The entry of a measured process: runs one role of one side and prints what it found as JSON."""

import importlib
import json
import sys


def main() -> None:
    """Arguments: the side's module, the role's function in it, the function's keywords as JSON."""
    module, role, keywords = sys.argv[1:]
    found = getattr(importlib.import_module(module), role)(**json.loads(keywords))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
