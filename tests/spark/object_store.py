"""A fake of an object store over HTTP, as S3 speaks it: in memory, and with answers that go wrong."""

import hashlib
import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4
from xml.sax.saxutils import escape

CONTROL: Final = "_control"
PATIENCE: Final = 120.0
_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")


class Contents:
    """What is in the store, and how its answers go wrong.

    `twice` is how many of the next writes are done and then answered with an error, as where an answer is
    lost; `failing` is how many of the next requests fail before anything is done; `late` is how many of the
    next writes are done and answered only once the store is told to go on. `only` says for which keys.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.twice = 0
        self.failing = 0
        self.late = 0
        self.going_on = threading.Event()
        self.only = ""
        self.denied = False
        self.lock = threading.Lock()

    def is_spoiled(self, key: str, kind: str) -> bool:
        """Whether this request goes wrong; it is counted."""
        left = getattr(self, kind)
        if left <= 0 or self.only not in key:
            return False
        setattr(self, kind, left - 1)
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Contents

    def do_GET(self) -> None:
        """An object, a part of it, or a list."""
        key, query = self._asked()
        if key == CONTROL:
            said = {name: getattr(self.store, name) for name in ("failing", "twice", "late")}
            self._answer(200, json.dumps(said).encode())
            return
        if self._goes_wrong(key):
            return
        if "list-type" in query:
            self._list(key.rstrip("/"), query)
            return
        data = self.store.objects.get(key)
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        if found := _RANGE.fullmatch(self.headers.get("Range", "")):
            first = int(found[1]) if found[1] else len(data) - int(found[2])
            last = int(found[2]) if found[1] and found[2] else len(data) - 1
            part = data[first : last + 1]
            span = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
            self._answer(206, part, {"Content-Range": span, **_facts(data)})
            return
        self._answer(200, data, _facts(data))

    def do_HEAD(self) -> None:
        """The same without what is in it."""
        self.do_GET()

    def do_PUT(self) -> None:
        """A whole object; with If-None-Match only where there is none."""
        key, query = self._asked()
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if key == CONTROL:
            vars(self.store).update(json.loads(data))
            self.store.going_on.set()
            self.store.going_on = threading.Event()
            self._answer(200, b"")
            return
        if self._goes_wrong(key):
            return
        if "uploadId" in query:
            self.store.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = data
            self._answer(200, b"", _facts(data))
            return
        going_on = self.store.going_on
        with self.store.lock:
            is_taken = self.headers.get("If-None-Match") == "*" and key in self.store.objects
            if not is_taken:
                self.store.objects[key] = data
        if is_taken:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        elif self.store.is_spoiled(key, "twice"):
            self._answer(500, b"<Error><Code>InternalError</Code></Error>")
        else:
            if self.store.is_spoiled(key, "late"):
                going_on.wait(PATIENCE)
            self._answer(200, b"", _facts(data))

    def do_DELETE(self) -> None:
        """Remove an object."""
        self.store.objects.pop(self._asked()[0], None)
        self._answer(204, b"")

    def do_POST(self) -> None:
        """Remove many objects, or put one together from its parts."""
        key, query = self._asked()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self._goes_wrong(key):
            return
        if "uploads" in query:
            upload = uuid4().hex
            self.store.uploads[upload] = {}
            name = "InitiateMultipartUploadResult"
            self._answer(200, f"<{name}><UploadId>{upload}</UploadId></{name}>".encode())
            return
        if "uploadId" in query:
            parts = self.store.uploads.pop(query["uploadId"][0])
            data = b"".join(parts[number] for number in sorted(parts))
            self.store.objects[key] = data
            said = f"<CompleteMultipartUploadResult><ETag>{_tag(data)}</ETag></CompleteMultipartUploadResult>"
            self._answer(200, said.encode())
            return
        bucket = key.rstrip("/")
        keys = re.findall(r"<Key>(.*?)</Key>", body)
        for key in keys:
            self.store.objects.pop(f"{bucket}/{key}", None)
        gone = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())

    def log_message(self, *args: object) -> None:
        """Nothing is logged."""

    def _asked(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True)

    def _goes_wrong(self, key: str) -> bool:
        if self.store.denied:
            self._answer(403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
            return True
        if self.store.is_spoiled(key, "failing"):
            self._answer(503, b"<Error><Code>SlowDown</Code></Error>")
            return True
        return False

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        with self.store.lock:
            sizes = {key: (len(data), _tag(data)) for key, data in self.store.objects.items()}
        inside = sorted(key.removeprefix(f"{bucket}/") for key in sizes if key.startswith(f"{bucket}/"))
        chosen = [key for key in inside if key.startswith(prefix) and key > after]
        folders = ""
        if query.get("delimiter", [""])[0]:
            below = {key[len(prefix) :].partition("/")[0] for key in chosen if "/" in key[len(prefix) :]}
            chosen = [key for key in chosen if "/" not in key[len(prefix) :]]
            names = [f"{prefix}{name}/" for name in sorted(below)]
            folders = "".join(f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in names)
        entries = ""
        for key in chosen:
            size, tag = sizes[f"{bucket}/{key}"]
            entries += (
                f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-31T00:00:00.000Z</LastModified>"
                f'<ETag>"{tag}"</ETag><Size>{size}</Size></Contents>'
            )
        said = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}{folders}</ListBucketResult>"
        self._answer(200, said.encode())

    def _answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _facts(data: bytes) -> dict[str, str]:
    return {"ETag": f'"{_tag(data)}"', "Last-Modified": "Sat, 31 Jan 2026 00:00:00 GMT"}


class ObjectStore:
    """The store in a process of its own: clients may hold this one's interpreter while they wait for it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def spoil(
        self, only: str = "", *, failing: int = 0, twice: int = 0, late: int = 0, denied: bool = False
    ) -> None:
        """Let the next requests go wrong, or all of them; see `Contents`. Late answers go out."""
        asked = {"only": only, "failing": failing, "twice": twice, "late": late, "denied": denied}
        self._control("PUT", json.dumps(asked).encode())

    def left(self) -> int:
        """How many requests have yet to go wrong."""
        found = json.loads(self._control("GET"))
        return int(found["failing"]) + int(found["twice"]) + int(found["late"])

    def _control(self, method: str, data: bytes | None = None) -> bytes:
        asked = urllib.request.Request(f"{self.url}/{CONTROL}", data=data, method=method)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            found: bytes = answer.read()
            return found


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """An empty store, for the time of the block."""
    command = [sys.executable, "-m", "tests.spark.object_store"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield ObjectStore(process.stdout.readline().decode().strip())
        finally:
            process.kill()


def _main() -> None:
    handler = type("Handler", (_Handler,), {"store": Contents()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _main()
