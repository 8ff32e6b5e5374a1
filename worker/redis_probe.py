"""One command to a Redis over its Unix socket, without a client library: to see whether it is up, and to end it."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import BinaryIO

TIMEOUT_S = 5.0


def ask(path: Path, password: str, *command: str) -> str:
    """The status or error line with its sign (`+PONG`, `-LOADING ...`), or the last string of an array.

    Raises:
        OSError: nobody listens, or the answer does not come.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(os.fspath(path))
        for words in (("AUTH", password), command):
            parts = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            connection.sendall(f"*{len(words)}\r\n{parts}".encode())
        with connection.makefile("rb") as answers:
            authenticated = _read(answers)
            return _read(answers) if authenticated == "+OK" else authenticated


def _read(answers: BinaryIO) -> str:
    line = answers.readline()
    if not line:
        raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
    if line[:1] == b"$":
        return answers.read(int(line[1:]) + 2)[:-2].decode()
    if line[:1] == b"*":
        return [_read(answers) for _ in range(int(line[1:]))][-1]
    return line.strip().decode(errors="replace")
