"""Ways to the network and to sockets of others."""

import _socket
import os
import socket
import struct

from tests.sandbox.scene import IS_X86, Scene, raw, technique

_FASTOPEN = 0x20000000


@technique()
def connect_by_tcp(scene: Scene) -> None:
    socket.create_connection(("127.0.0.1", scene.tcp), 5)


@technique()
def connect_by_tcp_6(scene: Scene) -> None:
    sock = socket.socket(socket.AF_INET6)
    sock.connect(("::ffff:127.0.0.1", scene.tcp))


@technique()
def connect_by_multipath_tcp(scene: Scene) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    sock.connect(("127.0.0.1", scene.tcp))


@technique()
def connect_by_fast_open(scene: Scene) -> None:
    sock = socket.socket()
    sock.sendto(b"x", _FASTOPEN, ("127.0.0.1", scene.tcp))


@technique()
def listen(scene: Scene) -> None:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()


@technique()
def accept_on_an_inherited_socket(scene: Scene) -> None:
    socket.socket(fileno=scene.listener).getsockname()


@technique()
def send_a_datagram(scene: Scene) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", scene.udp))


@technique()
def make_a_raw_socket(scene: Scene) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@technique()
def make_a_packet_socket(scene: Scene) -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))


@technique()
def make_a_ping_socket(scene: Scene) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)


@technique()
def reach_the_host_by_vsock(scene: Scene) -> None:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


@technique()
def ask_the_kernel_by_netlink(scene: Scene) -> None:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    sock.send(struct.pack("<IHHIIB3x", 20, 18, 0x301, 1, 0, 0))
    sock.recv(4096)


@technique()
def use_the_kernels_ciphers(scene: Scene) -> None:
    socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)


@technique()
def connect_to_a_socket_by_its_path(scene: Scene) -> None:
    socket.socket(socket.AF_UNIX).connect(scene.unix)


@technique()
def connect_to_an_abstract_socket(scene: Scene) -> None:
    socket.socket(socket.AF_UNIX).connect("\0" + scene.abstract)


@technique()
def send_to_a_path_from_a_pair(scene: Scene) -> None:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", scene.datagrams)


@technique()
def send_to_a_path_in_the_message(scene: Scene) -> None:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendmsg([b"x"], [], 0, scene.datagrams)


@technique()
def make_a_socket_by_its_path(scene: Scene) -> None:
    socket.socket(socket.AF_UNIX).bind(f"{scene.work}/bound")


@technique("net")
def ask_the_broker_for_another_port(scene: Scene) -> None:
    socket.create_connection(("127.0.0.1", scene.tcp), 5)


@technique("net")
def make_a_socket_behind_the_shim(scene: Scene) -> None:
    sock = _socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.connect(("127.0.0.1", scene.tcp))


@technique("net")
def connect_a_brokered_socket_anew(scene: Scene) -> None:
    sock = socket.create_connection(("127.0.0.1", scene.allowed_tcp), 5)
    bare = _socket.socket(fileno=os.dup(sock.fileno()))
    bare.setblocking(True)
    _disconnect(bare.fileno())
    bare.connect(("127.0.0.1", scene.tcp))


@technique("net")
def connect_a_brokered_socket_anew_by_fast_open(scene: Scene) -> None:
    sock = socket.create_connection(("127.0.0.1", scene.allowed_tcp), 5)
    bare = _socket.socket(fileno=os.dup(sock.fileno()))
    bare.setblocking(True)
    _disconnect(bare.fileno())
    bare.sendto(b"x", _FASTOPEN, ("127.0.0.1", scene.tcp))


def _disconnect(descriptor: int) -> None:
    """By the address of no family."""
    raw(42 if IS_X86 else 203, descriptor, bytes(16), 16)
