"""A service that is killed while it tells of endings tells of each one, under one id."""

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.serving import Serving, serving

pytestmark = pytest.mark.torture

LEASE = 30.0
"""Seconds after which what a killed service was delivering is delivered by the next."""


class Told:
    """What arrived: the ids of the messages about each job."""

    def __init__(self) -> None:
        self.ids: defaultdict[str, list[str]] = defaultdict(list)
        self.changed = threading.Condition()

    def wait(self, jobs: set[str], seconds: float) -> None:
        """Until all of these were told of, or so long."""
        with self.changed:
            self.changed.wait_for(lambda: jobs <= self.ids.keys(), seconds)


@pytest.fixture
def receiver() -> Iterator[tuple[Told, str]]:
    """What a receiver heard, and its url."""
    told = Told()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with told.changed:
                told.ids[body["data"]["job"]].append(self.headers["webhook-id"])
                told.changed.notify_all()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *said: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield told, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_every_ending_is_told_under_one_id_whatever_is_killed(
    tmp_path: Path, receiver: tuple[Told, str], chance: random.Random, scale: float
) -> None:
    """Jobs end while the service is killed again and again; the last one tells what the others did not."""
    told, url = receiver
    ended: set[str] = set()
    with serving(tmp_path) as service:
        made = service.ask("POST", "/v1/webhooks", json.dumps({"url": url}).encode())

        assert made[0] == 201
    for _ in range(round(5 * scale)):
        with serving(tmp_path, killed=True) as service:
            until = time.monotonic() + chance.uniform(0.3, 3.0)
            while time.monotonic() < until:
                ended |= _some(service)
    with serving(tmp_path):
        told.wait(ended, 4 * LEASE)

    assert ended <= told.ids.keys()
    assert {job: set(ids) for job, ids in told.ids.items() if len(set(ids)) > 1} == {}
    again = sum(len(ids) - 1 for ids in told.ids.values())
    print(f"{len(ended)} endings, {again} told more than once")


def _some(service: Serving) -> set[str]:
    """A few jobs that were made, claimed and completed."""
    jobs = {"jobs": [{"queue": "mail", "task": "send"}] * 20}
    assert service.ask("POST", "/v1/jobs", json.dumps(jobs).encode())[0] == 200
    status, said = service.ask("POST", "/v1/queues/mail/claims", b'{"worker": "w", "limit": 20}')
    assert status == 200, said
    claimed = json.loads(said)["jobs"]
    outcomes = [{"id": job["id"], "token": job["token"], "how": "complete"} for job in claimed]
    status, said = service.ask(
        "POST", "/v1/queues/mail/claims/settle", json.dumps({"settlements": outcomes}).encode()
    )
    assert status == 200, said
    return {job["id"] for job in claimed}
