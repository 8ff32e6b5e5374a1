"""Runs inside a command: tries attacks, each in a process of its own, and says REACHED of those that got there.

    python3 attacker.py <attack>,<attack>... <json of what to attack>

Standard library only. One line an attack: its name, a tab, REACHED or how it was stopped.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {
    "x86_64": {"bpf": 321, "perf_event_open": 298, "keyctl": 250, "userfaultfd": 323, "process_vm_readv": 310},
    "aarch64": {"bpf": 280, "perf_event_open": 241, "keyctl": 219, "userfaultfd": 282, "process_vm_readv": 270},
}[platform.machine()]
PTRACE_SEIZE = 0x4206
CLONE_NEWUSER = 0x10000000
PR_GET_NO_NEW_PRIVS = 39
TIOCSTI = 0x5412


def check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def write_outside(at: dict[str, Any]) -> None:
    with open(at["outside"] + "/written", "w") as file:
        file.write("x")


def write_over(at: dict[str, Any]) -> None:
    with open(at["outside"] + "/file", "w") as file:
        file.write("x")


def truncate(at: dict[str, Any]) -> None:
    os.truncate(at["outside"] + "/file", 0)


def remove(at: dict[str, Any]) -> None:
    os.unlink(at["outside"] + "/file")


def rename_out(at: dict[str, Any]) -> None:
    with open("mine", "w") as file:
        file.write("x")
    os.rename("mine", at["outside"] + "/moved")


def rename_in(at: dict[str, Any]) -> None:
    os.rename(at["outside"] + "/file", "stolen")


def hard_link_in(at: dict[str, Any]) -> None:
    os.link(at["outside"] + "/file", "linked")
    with open("linked", "w") as file:
        file.write("x")


def through_link(at: dict[str, Any]) -> None:
    os.symlink(at["outside"], "door")
    with open("door/written", "w") as file:
        file.write("x")


def chmod(at: dict[str, Any]) -> None:
    os.chmod(at["outside"] + "/file", 0o777)


def utime(at: dict[str, Any]) -> None:
    os.utime(at["outside"] + "/file", (1, 1))


def stat(at: dict[str, Any]) -> None:
    os.stat(at["outside"] + "/file")


def read_outside(at: dict[str, Any]) -> None:
    with open(at["outside"] + "/file") as file:
        file.read()


def list_outside(at: dict[str, Any]) -> None:
    os.listdir(at["outside"])


def list_system(_: dict[str, Any]) -> None:
    os.listdir("/var/lib")


def read_environment(at: dict[str, Any]) -> None:
    with open(f"/proc/{at['pid']}/environ") as file:
        assert "s3cr3t" in file.read()


def inherited_environment(_: dict[str, Any]) -> None:
    assert "s3cr3t" in str(dict(os.environ))


def inherited_descriptors(_: dict[str, Any]) -> None:
    for number in range(3, 4096):
        try:
            os.fstat(number)
        except OSError:
            continue
        return
    raise OSError("none")


def read_memory(at: dict[str, Any]) -> None:
    with open(f"/proc/{at['pid']}/mem", "rb", buffering=0) as file:
        file.seek(at["address"])
        assert file.read(6) == b"s3cr3t"


def read_memory_by_call(at: dict[str, Any]) -> None:
    class Piece(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    held = ctypes.create_string_buffer(6)
    here, there = Piece(ctypes.addressof(held), 6), Piece(at["address"], 6)
    one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    arguments = (ctypes.c_long(at["pid"]), ctypes.byref(here), one, ctypes.byref(there), one, none)
    check(libc.syscall(ctypes.c_long(NUMBERS["process_vm_readv"]), *arguments))
    assert held.raw == b"s3cr3t"


def list_processes(at: dict[str, Any]) -> None:
    with open(f"/proc/{at['pid']}/cmdline") as file:
        assert at["marker"] in file.read()


def tcp(at: dict[str, Any]) -> None:
    socket.create_connection(("127.0.0.1", at["tcp"]), timeout=2).close()


def udp(at: dict[str, Any]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"udp", ("127.0.0.1", at["udp"]))


def unix_socket(at: dict[str, Any]) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(at["outside"] + "/socket")


def unix_socket_inside(_: dict[str, Any]) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("socket")


def abstract_socket(at: dict[str, Any]) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + at["abstract"])


def datagram_pair(at: dict[str, Any]) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"pair", at["outside"] + "/datagrams")
    other.close()


def netlink(_: dict[str, Any]) -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()


def signal_worker(at: dict[str, Any]) -> None:
    os.kill(at["pid"], signal.SIGUSR1)


def user_namespace(_: dict[str, Any]) -> None:
    check(libc.unshare(CLONE_NEWUSER))


def user_namespace_by_clone(_: dict[str, Any]) -> None:
    number = 56 if platform.machine() == "x86_64" else 220
    pid = check(libc.syscall(number, CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def gain_privileges(_: dict[str, Any]) -> None:
    if libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1:
        raise OSError("setuid programs gain nothing")


def ptrace(at: dict[str, Any]) -> None:
    check(libc.ptrace(PTRACE_SEIZE, at["pid"], 0, 0))


def inject_typing(_: dict[str, Any]) -> None:
    # On something that is no terminal the kernel says ENOTTY; a filter stops it before.
    if libc.ioctl(0, TIOCSTI, ctypes.byref(ctypes.c_char(b"x"))) < 0 and ctypes.get_errno() == 1:
        raise PermissionError


def daemon(at: dict[str, Any]) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(3):
                os.close(number)
            os.execv("/bin/bash", ["bash", "-c", f"trap '' TERM HUP; : {at['daemon']}; sleep 30; sleep 30"])
        os._exit(0)


def mount(_: dict[str, Any]) -> None:
    os.mkdir("mounted")
    check(libc.mount(b"none", b"mounted", b"tmpfs", 0, None))
    check(libc.umount(b"mounted"))


def set_kernel(_: dict[str, Any]) -> None:
    with open("/proc/sys/kernel/core_pattern") as file:
        pattern = file.read()
    with open("/proc/sys/kernel/core_pattern", "w") as file:
        file.write(pattern)


def shared_memory(at: dict[str, Any]) -> None:
    check(libc.shmget(at["shm"], 0, 0))


def bpf(_: dict[str, Any]) -> None:
    check(libc.syscall(NUMBERS["bpf"], 0, ctypes.create_string_buffer(b"\2\0\0\0\4\0\0\0\4\0\0\0\1\0\0\0", 72), 72))


def keyring(_: dict[str, Any]) -> None:
    check(libc.syscall(NUMBERS["keyctl"], 0, -3, 1))


def io_uring(_: dict[str, Any]) -> None:
    check(libc.syscall(425, 1, ctypes.create_string_buffer(120)))


def page_faults(_: dict[str, Any]) -> None:
    check(libc.syscall(NUMBERS["userfaultfd"], 1))


def main() -> None:
    attacks: dict[str, Callable[[dict[str, Any]], None]] = {
        name: value for name, value in globals().items() if callable(value)
    }
    at = json.loads(sys.argv[2])
    for name in sys.argv[1].split(","):
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            continue
        try:
            attacks[name](at)
        except (OSError, AssertionError) as error:
            print(name, f"stopped: {error}", sep="\t", flush=True)
        else:
            print(name, "REACHED", sep="\t", flush=True)
        os._exit(0)


main()
