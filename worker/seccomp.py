"""The seccomp filter of a command, assembled here: classic BPF, no library, for x86_64 and aarch64.

Everything is allowed but what is named below. Imports nothing but the standard library: the launcher runs it too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

# <linux/filter.h>, <linux/seccomp.h>
_LD_W_ABS = 0x20
_ALU_AND_K = 0x54
_JMP_JEQ_K = 0x15
_JMP_JGE_K = 0x35
_JMP_JSET_K = 0x45
_RET_K = 0x06
_RET_ALLOW = 0x7FFF0000
_RET_ERRNO = 0x00050000
_OFFSET_NUMBER = 0
_OFFSET_ARCH = 4
_OFFSET_ARGS = 16

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

# CLONE_NEW* as clone() takes them; NEWTIME shares its bit with the exit signal and needs clone3 or unshare.
_CLONE_NEW_ANY = 0x7E020000
_TIOCSTI = 0x5412
_TIOCLINUX = 0x541C
_SOCK_TYPE_MASK = 0xF
_SOCK_STREAM = 1
_SOCK_SEQPACKET = 5
_AF_INET = 2
_AF_INET6 = 10
_IPPROTO_TCP = 6

_CALLS_X86_64 = {
    "ioctl": 16, "shmget": 29, "shmat": 30, "socket": 41, "socketpair": 53, "clone": 56, "semget": 64, "msgget": 68,
    "ptrace": 101, "syslog": 103, "vhangup": 153, "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163,
    "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
    "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176,
    "quotactl": 179, "lookup_dcookie": 212, "clock_settime": 227, "mq_open": 240, "kexec_load": 246, "add_key": 248,
    "request_key": 249, "keyctl": 250, "migrate_pages": 256, "unshare": 272, "move_pages": 279,
    "perf_event_open": 298, "fanotify_init": 300, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308,
    "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320,
    "bpf": 321, "userfaultfd": 323,
}  # fmt: skip
_CALLS_AARCH64 = {
    "lookup_dcookie": 18, "ioctl": 29, "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "vhangup": 58,
    "quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
    "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161, "setdomainname": 162,
    "settimeofday": 170, "adjtimex": 171, "mq_open": 180, "msgget": 186, "semget": 190, "shmget": 194, "shmat": 196,
    "socket": 198, "socketpair": 199, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "swapon": 224,
    "swapoff": 225, "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262,
    "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271,
    "kcmp": 272, "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
}  # fmt: skip
# One numbering for all architectures since 5.1.
_CALLS_NEW = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "open_tree_attr": 467,
}  # fmt: skip
CALLS: dict[str, dict[str, int]] = {
    "x86_64": _CALLS_X86_64 | _CALLS_NEW,
    "aarch64": _CALLS_AARCH64 | _CALLS_NEW,
}
"""Numbers of the system calls that the filter names, by machine."""

_libc = ctypes.CDLL(None, use_errno=True)

SYSTEM_V = frozenset({"shmget", "shmat", "semget", "msgget", "mq_open"})
"""Outlive their maker and are seen by all of a uid: denied where there is no IPC namespace."""


class Unsupported(Exception):
    """The machine's architecture is not known here."""


def _instruction(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, k)


def _deny(error: int) -> bytes:
    return _instruction(_RET_K, _RET_ERRNO | error)


_ALLOW = _instruction(_RET_K, _RET_ALLOW)


def _load_argument(index: int) -> bytes:
    return _instruction(_LD_W_ABS, _OFFSET_ARGS + 8 * index)


def _search(bodies: list[tuple[int, list[bytes]]]) -> list[bytes]:
    """The body for the number in the accumulator, each of which is for all numbers from its own up to the next one's.

    By halves, since the kernel runs the program for every call there is when it is installed (to know which ones it
    always lets through), and again at each call that it does not know: in a row, that took a command 0.25 ms. A body
    ends in a return on every way through it, since the accumulator may no longer hold the number behind it.
    """
    if len(bodies) == 1:
        return bodies[0][1]
    middle = len(bodies) // 2
    below, above = _search(bodies[:middle]), _search(bodies[middle:])
    return [_instruction(_JMP_JGE_K, bodies[middle][0], len(below), 0), *below, *above]


def _judge_socket(tcp: bool) -> list[bytes]:
    if not tcp:
        return [_deny(errno.EACCES)]
    refuse = _deny(errno.EACCES)
    return [
        _load_argument(0),
        _instruction(_JMP_JEQ_K, _AF_INET, 2, 0),
        _instruction(_JMP_JEQ_K, _AF_INET6, 1, 0),
        refuse,
        _load_argument(1),
        _instruction(_ALU_AND_K, _SOCK_TYPE_MASK),
        _instruction(_JMP_JEQ_K, _SOCK_STREAM, 1, 0),
        refuse,
        _load_argument(2),
        _instruction(_JMP_JEQ_K, 0, 2, 0),
        _instruction(_JMP_JEQ_K, _IPPROTO_TCP, 1, 0),
        refuse,
        _ALLOW,
    ]


def _judge_socketpair() -> list[bytes]:
    # A datagram pair may be connected anew, to any Unix datagram socket; the other kinds may not.
    return [
        _load_argument(1),
        _instruction(_ALU_AND_K, _SOCK_TYPE_MASK),
        _instruction(_JMP_JEQ_K, _SOCK_STREAM, 2, 0),
        _instruction(_JMP_JEQ_K, _SOCK_SEQPACKET, 1, 0),
        _deny(errno.EACCES),
        _ALLOW,
    ]


def assemble(*, tcp: bool, system_v: bool, machine: str | None = None) -> bytes:
    """The filter as the bytes of a `struct sock_filter[]`.

    `tcp` lets TCP sockets be made (for use inside a network namespace), `system_v` System V and POSIX queues, shared
    memory and semaphores (inside an IPC namespace). Unix, datagram, raw and all other sockets are always denied.

    Raises:
        Unsupported: the machine is neither x86_64 nor aarch64.
    """
    machine = machine or platform.machine()
    if machine not in CALLS:
        raise Unsupported(f"no seccomp filter for {machine!r}, only for {', '.join(CALLS)}")
    calls = CALLS[machine]
    program = [
        _instruction(_LD_W_ABS, _OFFSET_ARCH),
        _instruction(_JMP_JEQ_K, _AUDIT_ARCH[machine], 1, 0),
        _deny(errno.ENOSYS),
        _instruction(_LD_W_ABS, _OFFSET_NUMBER),
    ]
    judged = {
        # glibc falls back from clone3, whose flags lie in memory that a filter can't read, to clone.
        "clone3": [_deny(errno.ENOSYS)],
        "clone": [_load_argument(0), _instruction(_JMP_JSET_K, _CLONE_NEW_ANY, 0, 1), _deny(errno.EPERM), _ALLOW],
        "ioctl": [
            _load_argument(1),
            _instruction(_JMP_JEQ_K, _TIOCSTI, 1, 0),
            _instruction(_JMP_JEQ_K, _TIOCLINUX, 0, 1),
            _deny(errno.EPERM),
            _ALLOW,
        ],
        "socket": _judge_socket(tcp),
        "socketpair": _judge_socketpair(),
    }
    allowed = SYSTEM_V if system_v else frozenset()
    special = {number: judged.get(name, [_deny(errno.EPERM)]) for name, number in calls.items() if name not in allowed}
    starts: dict[int, list[bytes]] = {0: [_ALLOW]}
    for number in sorted(special):
        starts[number] = special[number]
        starts[number + 1] = [_ALLOW]
    if machine == "x86_64":
        starts[_X32_BIT] = [_deny(errno.ENOSYS)]
    bodies: list[tuple[int, list[bytes]]] = []
    for start, body in starts.items():
        if not bodies or bodies[-1][1] != body:
            bodies.append((start, body))
    return b"".join(program + _search(bodies))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(program: bytes) -> None:
    """Put this thread and all it starts under the filter, for good. Sets no_new_privs.

    Raises:
        OSError: the kernel refused; `strerror` begins with the call's name.
    """
    held = ctypes.create_string_buffer(program, len(program))
    header = _Program(len(program) // 8, ctypes.addressof(held))
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl(PR_SET_NO_NEW_PRIVS): {os.strerror(ctypes.get_errno())}")
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl(PR_SET_SECCOMP): {os.strerror(ctypes.get_errno())}")
