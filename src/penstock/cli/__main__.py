"""`python -m penstock.cli` is the same as `penstock`."""

import sys

from penstock.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
