"""What lies between the launcher and a command: how a job comes, its arguments, its wall.

Imports nothing but the standard library and its neighbours, which do the same.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import signal
import socket
from dataclasses import dataclass
from typing import Any, NamedTuple

from worker import bubblewrap, landlock, seccomp
from worker.cgroups import Cgroup, Delegated

INLINE_BYTES = 100 * 1024
"""Scripts up to here are an argument of bash, which may have 128 KiB; longer ones are read from a descriptor."""

SETUP_FAILED = 125
"""Exit code of a child that could not become the command; it has said why on the jobs socket."""

SIGNALS_TO_RESET = (
    signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
)  # fmt: skip
"""Python ignores the first two, the zygote the others; what is ignored or blocked would stay so across exec."""

TASKS_OF_BWRAP = 2
"""What the wall itself takes of a command's processes."""

_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_LAST_CAPABILITY = 63
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_MAX_MESSAGE = 256 * 1024
_MAX_DESCRIPTORS = 8
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PROC_FILES = ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Prepared:
    """What the zygote has made ready for all children."""

    tier: str
    bash: str
    filter: bytes
    bwrap: str = ""
    bwrap_arguments: tuple[str, ...] = ()
    etc: str = ""
    etc_lock: int = -1
    keeps_signals_in: bool = False
    abi: int = 0
    readable: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    limits_processes: bool = True
    delegated: Delegated | None = None
    """Where each command gets a cgroup of its own."""


class Started(NamedTuple):
    """A process that is to become a command, and the descriptors it comes with.

    It waits until `block` has been given `opening` and is closed. What its wall says of itself comes by `status`.
    `limits` are those that it has not set itself, `cgroup` is its own, and `without_cgroup` says why it has none.
    """

    pid: int
    status: int
    block: int
    opening: bytes = b""
    limits: dict[str, int] | None = None
    cgroup: Cgroup | None = None
    without_cgroup: str = ""


def prepare(plan: dict[str, Any]) -> Prepared:
    """From the worker's plan: `tier` (bwrap, landlock, none), `bash`, and for bwrap its path `bwrap`.

    `cgroup` and `controllers` are of the cgroup that may be divided, where there is one.
    """
    tier = plan["tier"]
    version = landlock.abi()
    # The kernel exempts root from RLIMIT_NPROC; for it the runner's watch is the limit.
    prepared = Prepared(tier, plan["bash"], b"", limits_processes=os.getuid() != 0)
    if "cgroup" in plan:
        prepared.delegated = Delegated(plan["cgroup"], tuple(plan["controllers"]))
    if tier == "bwrap":
        prepared.filter = seccomp.assemble(tcp=True, system_v=True)
        prepared.bwrap = plan["bwrap"]
        prepared.etc, prepared.etc_lock = bubblewrap.copy_etc()
        prepared.bwrap_arguments = tuple(bubblewrap.system_arguments(prepared.etc))
    elif tier == "landlock":
        prepared.filter = seccomp.assemble(tcp=False, system_v=False)
        prepared.abi = version
        trees = [*bubblewrap.SYSTEM_TREES, *bubblewrap.etc_paths(), *(f"/proc/{name}" for name in _PROC_FILES)]
        prepared.readable = tuple(os.open(path, os.O_PATH) for path in trees if os.path.exists(path))
        prepared.devices = tuple(os.open(path, os.O_PATH) for path in _DEVICES if os.path.exists(path))
    # With bubblewrap the end of the namespace's init is the end of all, and NNP would disarm a setuid bwrap.
    prepared.keeps_signals_in = tier != "bwrap" and version >= landlock.SIGNALS_ABI
    return prepared


def keep_signals_in() -> None:
    """Let this process signal nothing but what it starts from now on.

    Raises:
        OSError: the kernel refused; `strerror` begins with the call's name.
    """
    ruleset = landlock.create_for_signals()
    set_no_new_privileges()
    landlock.enter(ruleset)
    os.close(ruleset)


def receive(sender: socket.socket) -> tuple[bytes, list[int]]:
    """A message and the descriptors that came with it, which no exec passes on.

    socket.recv_fds drops the flag that sees to that.
    """
    data, ancillary, _, _ = sender.recvmsg(
        _MAX_MESSAGE, socket.CMSG_LEN(_MAX_DESCRIPTORS * array.array("i").itemsize), socket.MSG_CMSG_CLOEXEC
    )
    descriptors = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
    return data, descriptors.tolist()


def explain(jobs: socket.socket, error: BaseException) -> None:
    """Tell the worker why there is no command."""
    text = repr(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    try:
        jobs.send(json.dumps({"failed": text}).encode())
    except OSError:
        pass


def bash_arguments(script: int) -> list[str]:
    """How bash gets a script, from its descriptor, which is passed on where it is too long for an argument.

    Raises:
        ValueError: it has a NUL.
    """
    size = os.fstat(script).st_size
    if size <= INLINE_BYTES:
        text = os.pread(script, size, 0)
        if b"\0" in text:
            raise ValueError("the command has a NUL character, which no argument can carry")
        return ["bash", "--noprofile", "--norc", "-c", os.fsdecode(text)]
    os.set_inheritable(script, True)
    return ["bash", "--noprofile", "--norc", "-c", f". /dev/fd/{script}"]


def filter_descriptor(prepared: Prepared) -> int:
    """A pipe that bwrap reads the filter from."""
    read_end, write_end = os.pipe()
    os.write(write_end, prepared.filter)
    os.close(write_end)
    return read_end


def bwrap_arguments(job: dict[str, Any], prepared: Prepared, passed: list[int]) -> list[str]:
    """bwrap's, up to the command; `passed` are the descriptors of the filter, of its status, and what it waits for."""
    options = ("--seccomp", "--json-status-fd", "--block-fd")
    arguments = [prepared.bwrap, *prepared.bwrap_arguments]
    for option, descriptor in zip(options, passed, strict=True):
        arguments += [option, str(descriptor)]
    return arguments + bubblewrap.job_arguments(
        workspace=job["workspace"],
        writable=job["writable"],
        cwd=job["cwd"],
        read_only=job["read_only"],
        tmp_bytes=job["limits"]["tmp_bytes"],
    )


def ruleset_of_system(prepared: Prepared) -> int:
    """A ruleset of what every command may reach: its descriptor.

    Raises:
        OSError: the kernel refused; `strerror` begins with the call's name.
    """
    ruleset = landlock.create(prepared.abi)
    for descriptor in prepared.readable:
        landlock.grant(ruleset, prepared.abi, descriptor, landlock.READ)
    for descriptor in prepared.devices:
        landlock.grant(ruleset, prepared.abi, descriptor, landlock.DEVICE)
    return ruleset


def grant_to_job(ruleset: int, prepared: Prepared, job: dict[str, Any], workspace: int) -> None:
    """Adds what this one may reach.

    Raises:
        OSError: the kernel refused; `strerror` begins with the call's name.
    """
    access = landlock.WRITE if job["writable"] else landlock.READ
    landlock.grant(ruleset, prepared.abi, workspace, access)
    for path in job["read_only"]:
        descriptor = os.open(path, os.O_PATH)
        landlock.grant(ruleset, prepared.abi, descriptor, landlock.READ)
        os.close(descriptor)


def shed_privileges(prepared: Prepared) -> None:
    """Puts this thread, and all it starts, behind the filter, for good, without capabilities or a way to gain them.

    Raises:
        OSError: the kernel refused; `strerror` begins with the call's name.
    """
    _drop_capabilities()
    set_no_new_privileges()
    seccomp.install(prepared.filter)


def _drop_capabilities() -> None:
    # Root would keep its capabilities, which Landlock does not bound: they go, and exec can't bring them back.
    for capability in range(_LAST_CAPABILITY + 1):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    if _libc.capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), f"capset: {os.strerror(ctypes.get_errno())}")


def set_no_new_privileges() -> None:
    """No exec from here on gains anything.

    Raises:
        OSError: the kernel refused; `strerror` begins with the call's name.
    """
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl(PR_SET_NO_NEW_PRIVS): {os.strerror(ctypes.get_errno())}")
