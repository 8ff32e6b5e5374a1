"""A process with secrets and open doors, of the same user as the commands: it stands for the worker and for Redis.

Says where everything is, as JSON on one line, then what happens to it, a word a line. Ends when its input closes.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys


def main() -> None:
    outside = sys.argv[1]
    libc = ctypes.CDLL(None)
    memory = ctypes.create_string_buffer(b"s3cr3t-in-memory")
    tcp = socket.create_server(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(outside + "/socket")
    inside = socket.socket(socket.AF_UNIX)
    inside.bind(sys.argv[2] + "/socket")
    abstract_name = f"reef-{os.getpid()}"
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0" + abstract_name)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(outside + "/datagrams")
    for listener in (unix, inside, abstract):
        listener.listen()
    key = 0x5EEF0000 | os.getpid() & 0xFFFF
    segment = libc.shmget(key, 4096, 0o1600)
    signal.signal(signal.SIGUSR1, lambda *_: print("signalled", flush=True))
    where = {
        "pid": os.getpid(),
        "address": ctypes.addressof(memory),
        "tcp": tcp.getsockname()[1],
        "udp": udp.getsockname()[1],
        "abstract": abstract_name,
        "shm": key,
    }
    print(json.dumps(where), flush=True)
    names = {tcp: "tcp", unix: "unix", inside: "inside", abstract: "abstract"}
    while True:
        ready, _, _ = select.select([*names, udp, datagrams, sys.stdin], [], [])
        if sys.stdin in ready:
            break
        for door, name in names.items():
            if door in ready:
                print(name, flush=True)
                door.accept()[0].close()
        for box in (udp, datagrams):
            if box in ready:
                print(box.recv(100).decode(), flush=True)
    libc.shmctl(segment, 0, None)


main()
