"""Plays every technique as a job of a worker, in the folder named first, and prints what came of it."""

import asyncio
import json
import os
import sys
from pathlib import Path

import msgspec

from tests.sandbox.stage import staged

if __name__ == "__main__":
    with staged(Path(sys.argv[1])) as stage:
        os.environ["PENSTOCK_TEST_SCENE"] = msgspec.json.encode(stage.scene).decode()
        with stage.watched() as left:
            from tests.sandbox import jobs

            came = asyncio.run(jobs.play())
        print(json.dumps({"came": came, "left": left}))
