"""The worker on the page works off a job."""

import asyncio
import os
from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.kit.curl import path_with_curl
from tests.service.kit import client_of
from tests.service.test_server import served

PAGE = ROOT / "docs" / "how-to" / "worker-in-curl.md"


async def test_the_worker_in_curl_completes_a_job(tmp_path: Path) -> None:
    (script,) = [each for each in blocks(PAGE) if each.info == "sh worker.sh"]
    (tmp_path / "worker.sh").write_text(script.code, "utf-8")
    async with served() as (server, port):
        client = client_of(server.service)
        # A payload is kept as it was written: here with the page's spaces.
        fields = '{"task": "resize", "payload": {"image": "cat.png"}}'
        assert f"'{fields}'" in PAGE.read_text("utf-8")
        made = await client.post(
            "/v1/queues/thumbs/jobs", content=fields, headers={"content-type": "application/json"}
        )
        path = made.headers["location"]
        said = {
            "SERVICE": f"http://127.0.0.1:{port}",
            "TOKEN": "any",
            "ONCE": "yes",
            "PATH": path_with_curl(tmp_path),
        }
        worker = await asyncio.create_subprocess_exec(
            *("sh", "worker.sh"),
            cwd=tmp_path,
            env=os.environ | said,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        told, noted = await worker.communicate()
        job = (await client.get(f"{path}?result=true")).json()

    assert b"resizing cat.png" in noted
    assert b'"applied":true' in told
    assert (job["state"], job["result"], job["worker"]) == ("completed", "small", "shell-1")
