"""`serve`: a real process, its key and its end; and what it refuses to begin with."""

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.cli.conftest import Shell
from tests.kit.waiting import PATIENCE


def test_a_service_names_the_file_of_its_key_serves_with_it_and_ends_on_sigterm(shell: Shell) -> None:
    served = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "serve", "--port", "0", "--url", shell.url],
        cwd=shell.directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert served.stdout is not None
        address = served.stdout.readline().split()[-1]
        said = [served.stdout.readline() for _ in range(2)]
        file = Path(said[1].split()[-1])
        key = file.read_text().strip()
        assert said[1] == f"make a token with it: penstock token mint --tenant NAME --key-file {file}\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "psk_" not in "".join(said)
        assert shell("token", "mint", "--tenant", "acme", "--key-file", str(file)) == 0
        headers = {"Authorization": f"Bearer {shell.out.strip()}", "Content-Type": "application/json"}
        wish = json.dumps({"task": "send"}).encode()
        with urlopen(Request(f"{address}/v1/queues/mail/jobs", wish, headers)) as answer:
            made = json.load(answer)
        with pytest.raises(HTTPError, match="401") as refused:
            urlopen(f"{address}/v1/queues")
        refused.value.close()
        served.send_signal(signal.SIGTERM)
        _, noted = served.communicate(timeout=PATIENCE)
    finally:
        served.kill()

    assert made["created"] is True
    assert served.returncode == 0
    assert "POST /v1/queues/{queue}/jobs 201" in noted
    assert key not in noted
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0"), "is accepted on this machine only"),
        (("--port", "70000"), "a port, 0 to 65535"),
        (("--connections", "0"), "--connections: found '0', wanted a whole number"),
        (("--connections", "100", "--streams", "100"), "streams: found 100, wanted fewer than the 100"),
        (("--key", "psk_short"), "the development key"),
        (("--auth-file", "missing.toml"), "missing.toml: cannot be read"),
        (("--url", "memory://"), "memory"),
        (("--host", "192.0.2.1", "--key", "psk_" + "A" * 43), "cannot listen"),
    ],
)
def test_what_it_cannot_serve_with_is_one_line_and_exit_code_2(
    shell: Shell, arguments: tuple[str, ...], said: str
) -> None:
    assert shell("serve", *arguments) == 2
    assert shell.err.count("\n") == 1
    assert said in shell.err
