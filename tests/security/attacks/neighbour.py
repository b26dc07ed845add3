"""Another process of the same user, with a secret wherever a process can have one. It says on stdout what an attacker would know.

It ends when its stdin does. What reaches it is noted in DIRECTORY/heard: one word a line.
"""

import ctypes
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.security.attacks.kernel import call

CREATE = 0o1000
PR_SET_PTRACER, ANY = 0x59616D61, -1


def main() -> None:
    folder, secret = Path(sys.argv[1]), sys.argv[2].encode()
    heard = os.open(folder / "heard", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def hears(word: str) -> Callable[..., None]:
        return lambda *_: void(os.write(heard, f"{word}\n".encode()))

    signal.signal(signal.SIGUSR1, hears("SIGUSR1"))
    signal.signal(signal.SIGCONT, hears("SIGCONT"))
    # Where Yama is, only this lets the attack get as far as our own walls.
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_long(ANY), 0, 0, 0)

    memory = ctypes.create_string_buffer(secret)
    descriptor = os.memfd_create("secret")
    os.write(descriptor, secret)
    key = int.from_bytes(os.urandom(3), "little") | 1
    segment = call("shmget", key, 4096, CREATE | 0o600)
    address = call("shmat", segment, 0, 0)
    ctypes.memmove(address, secret, len(secret))

    tcp = socket.create_server(("127.0.0.1", 0))
    path, abstract = str(folder / "admin.sock"), f"fornada-attack-{os.getpid()}-{key}"
    by_path, by_name = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    by_path.bind(path)
    by_name.bind(f"\0{abstract}")
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    for server in (tcp, by_path, by_name):
        server.listen(16)
        threading.Thread(target=tell, args=(server, secret), daemon=True).start()
    threading.Thread(target=listen, args=(udp, hears("datagram")), daemon=True).start()
    facts = {
        "neighbour_pid": int(os.readlink("/proc/self")),
        "neighbour_address": ctypes.addressof(memory),
        "neighbour_length": len(secret) // 8 * 8,
        "neighbour_descriptor": descriptor,
        "tcp_ports": [tcp.getsockname()[1]],
        "udp_port": udp.getsockname()[1],
        "abstract_socket": abstract,
        "socket_path": path,
        "shm_key": key,
        "shm_length": len(secret),
    }
    print(json.dumps(facts), flush=True)
    try:
        while os.read(0, 1024):
            pass
    finally:
        ctypes.CDLL(None).shmctl(segment, 0, None)  # 0 removes it


def void(_: object) -> None:
    pass


def tell(server: socket.socket, secret: bytes) -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(secret)


def listen(udp: socket.socket, hears: Callable[[], None]) -> None:
    while True:
        udp.recv(4096)
        hears()


if __name__ == "__main__":
    main()
