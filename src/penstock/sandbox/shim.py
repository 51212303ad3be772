"""In a confined process: sockets that the broker connects, so that ordinary clients work unchanged.

A convenience, not a wall: without it a client gets PermissionError from the kernel, and no more than that
if it goes around it.
"""

import _socket
import asyncio
import errno
import ipaddress
import os
import socket
import threading
from asyncio.selector_events import BaseSelectorEventLoop
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from penstock.sandbox.broker import LONGEST, Refusal, Request

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_TYPE_MASK: Final = 0xF
_PORTS: Final = {"http": 80, "https": 443}

_Options = list[tuple[Any, ...]]


class Shim:
    """Replaces parts of `socket` and asyncio; the socket it holds leads to the broker."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._hosts: dict[str, str] = {}
        # Unassigned addresses stand for names until the broker resolves the name.
        self._unused = (str(ipaddress.IPv4Address("240.0.0.0") + each) for each in count(1))
        self._waiting: WeakKeyDictionary[socket.socket, _Options] = WeakKeyDictionary()
        self._init = socket.socket.__init__
        self._connect = socket.socket.connect
        self._setsockopt = socket.socket.setsockopt
        self._getaddrinfo = socket.getaddrinfo
        self._sock_connect = BaseSelectorEventLoop.sock_connect

    def install(self) -> None:
        """Install the replacements. Modules that imported the class earlier use them too."""
        shim = self
        replaced: Any = socket.socket
        loop: Any = BaseSelectorEventLoop

        def init(
            self: socket.socket,
            family: int = -1,
            type: int = -1,  # noqa: A002
            proto: int = -1,
            fileno: int | None = None,
        ) -> None:
            shim.make(self, family, type, proto, fileno)

        def connect(self: socket.socket, address: Any) -> None:
            shim.connect(self, address)

        def connect_ex(self: socket.socket, address: Any) -> int:
            try:
                shim.connect(self, address)
            except OSError as error:
                return error.errno or errno.EIO
            return 0

        def setsockopt(self: socket.socket, *option: Any) -> None:
            shim.set_option(self, option)

        async def sock_connect(self: BaseSelectorEventLoop, sock: socket.socket, address: Any) -> None:
            await shim.connect_async(self, sock, address)

        replaced.__init__ = init
        replaced.connect, replaced.connect_ex, replaced.setsockopt = connect, connect_ex, setsockopt
        loop.sock_connect = sock_connect
        socket.getaddrinfo = self.resolve
        socket.gethostbyname = self.stand_in

    def make(self, made: socket.socket, family: int, kind: int, proto: int, fileno: int | None) -> None:
        """A TCP socket begins as one end of a pair, which gives it a descriptor; others are the kernel's."""
        is_stream = kind == -1 or kind & _TYPE_MASK == socket.SOCK_STREAM
        if fileno is not None or family not in (-1, *_FAMILIES) or not is_stream:
            self._init(made, family, kind, proto, fileno)
            return
        ours, other = _socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        other.close()
        self._init(
            made,
            socket.AF_INET if family == -1 else family,
            socket.SOCK_STREAM,
            socket.IPPROTO_TCP,
            ours.detach(),
        )
        self._waiting[made] = []

    def set_option(self, sock: socket.socket, option: tuple[Any, ...]) -> None:
        """Set the option now, or once the socket is connected."""
        if sock in self._waiting:
            self._waiting[sock].append(option)
        else:
            self._setsockopt(sock, *option)

    def connect(self, sock: socket.socket, address: Any) -> None:
        """Connect through the broker. Waits for the connection, even on a non-blocking socket."""
        if sock not in self._waiting:
            self._connect(sock, address)
            return
        timeout = sock.gettimeout()
        connected = self._ask(Request(self._host(address[0]), int(address[1]), timeout or LONGEST))
        try:
            os.dup2(connected, sock.fileno(), inheritable=False)
        finally:
            os.close(connected)
        sock.settimeout(timeout)
        for option in self._waiting.pop(sock):
            self._setsockopt(sock, *option)

    async def connect_async(self, loop: BaseSelectorEventLoop, sock: socket.socket, address: Any) -> None:
        """As `connect`, without blocking the event loop."""
        if sock in self._waiting:
            await asyncio.get_running_loop().run_in_executor(None, self.connect, sock, address)
        else:
            await self._sock_connect(loop, sock, address)

    def resolve(
        self,
        host: Any,
        port: Any,
        family: int = 0,
        type: int = 0,  # noqa: A002
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """As getaddrinfo, but a name gives a placeholder address."""
        text = host.decode("ascii") if isinstance(host, bytes) else host
        if text is None or _is_address(text):
            return self._getaddrinfo(text, port, family, type, proto, flags | socket.AI_NUMERICHOST)
        if type & _TYPE_MASK not in (0, socket.SOCK_STREAM) or family not in (0, socket.AF_INET):
            raise socket.gaierror(socket.EAI_FAMILY, "within permissions there is only TCP")
        number = _PORTS.get(port) or int(port or 0)
        where = (self.stand_in(text), number)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", where)]

    def stand_in(self, host: str) -> str:
        """A placeholder address for this name."""
        if _is_address(host):
            return host
        with self._lock:
            if host not in self._names:
                address = next(self._unused)
                self._names[host], self._hosts[address] = address, host
            return self._names[host]

    def _host(self, address: str) -> str:
        return self._hosts.get(address, address)

    def _ask(self, request: Request) -> int:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self._line, [msgspec.json.encode(request)], [theirs.fileno()])
            ours.settimeout(request.timeout + 5)
            said, descriptors, _, _ = socket.recv_fds(ours, 4096, 1)
        if descriptors:
            return descriptors[0]
        if not said:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the broker did not answer")
        refusal = msgspec.json.decode(said, type=Refusal)
        raise OSError(refusal.errno, refusal.text)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
