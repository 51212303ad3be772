"""The broker: connects to allowed addresses on behalf of a process that has no network."""

import errno
import ipaddress
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from penstock.core.ranges import why_not
from penstock.sandbox.permissions import Address

LONGEST: Final = 60.0
"""Seconds that a connect may take."""
_MOST_BYTES: Final = 4096
_MOST_AT_ONCE: Final = 64
_DISGUISES: Final = [ipaddress.IPv6Network(each) for each in ("::ffff:0:0/96", "64:ff9b::/96", "2002::/16")]
"""Mapped addresses, NAT64 and 6to4: each counts as the address that is in it."""


class Request(msgspec.Struct, array_like=True):
    """A request to connect: host, port and time limit in seconds."""

    host: str
    port: int
    timeout: float


class Refusal(msgspec.Struct, array_like=True):
    """Why a connection was refused, as an error of the operating system."""

    errno: int
    text: str


class Broker:
    """Connects for one confined process and its children. `inside` is their end of the socket pair."""

    def __init__(self, allowed: Sequence[Address]) -> None:
        self._allowed = allowed
        self._line, self.inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._busy = threading.BoundedSemaphore(_MOST_AT_ONCE)

    def fileno(self) -> int:
        """The descriptor to watch for requests."""
        return self._line.fileno()

    def close(self) -> None:
        """Stop serving and close the socket."""
        self._line.close()
        self.inside.close()

    def serve(self) -> bool:
        """Take one request; False when the confined process has closed its end. A thread sends the answer."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._line, _MOST_BYTES, 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            for each in descriptors:
                os.close(each)
            return False
        if not (descriptors and self._busy.acquire(blocking=False) and self._start(data, descriptors[0])):
            # The confined process sees its end of the socket closed.
            for each in descriptors:
                os.close(each)
        return True

    def _start(self, data: bytes, descriptor: int) -> bool:
        try:
            threading.Thread(target=self._serve, args=(data, descriptor), daemon=True).start()
        except RuntimeError:
            # No thread could be started.
            self._busy.release()
            return False
        return True

    def _serve(self, data: bytes, descriptor: int) -> None:
        # What came from inside may be anything: the request is checked, and the descriptor may be no socket.
        try:
            with (
                suppress(OSError, ValueError, msgspec.DecodeError),
                socket.socket(fileno=descriptor) as reply,
            ):
                descriptor = -1
                reply.settimeout(1.0)
                self._answer(data, reply)
        finally:
            self._busy.release()
            if descriptor >= 0:
                os.close(descriptor)

    def _answer(self, data: bytes, reply: socket.socket) -> None:
        try:
            with self.connect(msgspec.json.decode(data, type=Request)) as connected:
                socket.send_fds(reply, [b"+"], [connected.fileno()])
        except OSError as error:
            is_lookup = isinstance(error, socket.gaierror)
            number = errno.EHOSTUNREACH if is_lookup else error.errno or errno.EIO
            refusal = Refusal(number, error.strerror or str(error))
            reply.send(msgspec.json.encode(refusal))

    def connect(self, request: Request) -> socket.socket:
        """A connected socket; PermissionError when no entry allows it."""
        host = request.host.lower().rstrip(".")
        entries = [each for each in self._allowed if matches(each, host, request.port)]
        if not entries:
            raise PermissionError(errno.EACCES, f"{request.host}:{request.port} is not among the permissions")
        is_named = any(each.host == host for each in entries)
        timeout = min(max(request.timeout, 0.001), LONGEST)
        failure: OSError | None = None
        for family, kind, protocol, _, where in socket.getaddrinfo(host, request.port, 0, socket.SOCK_STREAM):
            if not is_named and not _is_public(str(where[0])):
                failure = PermissionError(
                    errno.EACCES, f"{request.host} is {where[0]}, which is not public: name the host itself"
                )
                continue
            connecting = socket.socket(family, kind, protocol)
            try:
                connecting.settimeout(timeout)
                connecting.connect(where)
                connecting.settimeout(None)
            except OSError as error:
                connecting.close()
                failure = error if error.errno else TimeoutError(errno.ETIMEDOUT, "connect timed out")
            else:
                return connecting
        raise failure or OSError(errno.EHOSTUNREACH, f"{request.host} has no address")


def matches(entry: Address, host: str, port: int) -> bool:
    """Does the entry speak of this host, in lower letters, and this port?

    >>> matches(Address("*.example.org", 443), "api.example.org", 443)
    True
    >>> matches(Address("*.example.org", 443), "example.org", 443)
    False
    """
    if entry.port not in (None, port):
        return False
    return entry.host in ("*", host) or (entry.host.startswith("*.") and host.endswith(entry.host[1:]))


def _is_public(address: str) -> bool:
    return why_not(ipaddress.ip_address(address.partition("%")[0]), _DISGUISES) is None
