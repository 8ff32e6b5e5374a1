"""What the launcher's child does between fork and exec: wait for a job, wall itself in, become the command.

All that can be done beforehand is done before the job arrives. Imports nothing but the standard library and its
neighbours, which do the same.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import resource
import signal
import socket
from dataclasses import dataclass
from typing import Any, NoReturn

from worker import bubblewrap, landlock, seccomp
from worker.cgroups import Cgroup, Delegated

INLINE_BYTES = 100 * 1024
"""Scripts up to here are an argument of bash, which may have 128 KiB; longer ones are read from a descriptor."""

SETUP_FAILED = 125
"""Exit code of a child that could not become the command; it has said why on the jobs socket."""

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_LAST_CAPABILITY = 63
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_MAX_MESSAGE = 256 * 1024
_MAX_DESCRIPTORS = 8
_NICENESS = 5
_ALL_DESCRIPTORS = 2**31 - 1
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_TASKS_OF_BWRAP = 2
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


def become(jobs: socket.socket, prepared: Prepared, status: int, block: int, cgroup: Cgroup | None) -> NoReturn:
    """Wait for the job, then exec it. Whatever fails is said on the jobs socket."""
    try:
        os.setsid()
        refused = _enter(cgroup)
        _die_with_parent()
        ruleset = _ruleset(prepared) if prepared.tier == "landlock" else -1
        header, descriptors = receive(jobs)
        if not header:
            os._exit(0)
        _reset_signals()
        job = json.loads(header)
        stdout, stderr, script, cwd, workspace = descriptors
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        argv = _bash(script)
        kept = [jobs.fileno(), script]
        _limit(job["limits"])
        if cgroup is not None:
            _limit_together(cgroup, refused, prepared, job["limits"])
        if prepared.tier == "bwrap":
            _exec_bwrap(job, prepared, argv, kept, status, block)
        os.fchdir(cwd)
        if prepared.limits_processes:
            _limit_processes(job["limits"]["processes"])
        if prepared.tier == "landlock":
            access = landlock.WRITE if job["writable"] else landlock.READ
            landlock.grant(ruleset, prepared.abi, workspace, access)
            for path in job["read_only"]:
                landlock.grant(ruleset, prepared.abi, os.open(path, os.O_PATH), landlock.READ)
            _drop_capabilities()
            set_no_new_privileges()
            landlock.enter(ruleset)
            seccomp.install(prepared.filter)
        _close_all_but(kept)
        os.execve(prepared.bash, argv, job["env"])
    except BaseException as error:  # noqa: BLE001 - a forked child must never return into its parent's code
        _explain(jobs, error)
    os._exit(SETUP_FAILED)


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


def _enter(cgroup: Cgroup | None) -> OSError | None:
    # Before there is a job: to move costs the kernel milliseconds. What went wrong is said when there is one.
    try:
        if cgroup is not None:
            cgroup.enter()
    except OSError as error:
        return error
    return None


def _limit_together(cgroup: Cgroup, refused: OSError | None, prepared: Prepared, limits: dict[str, int]) -> None:
    if refused is not None:
        raise refused
    more = _TASKS_OF_BWRAP if prepared.tier == "bwrap" else 0
    cgroup.limit(memory_bytes=limits["memory_bytes"], processes=limits["processes"] + more)


def _close_all_but(kept: list[int]) -> None:
    # Everything is close-on-exec already; one descriptor forgotten would be a way out, so it is made sure of.
    low = 3
    for descriptor in sorted(kept):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, _ALL_DESCRIPTORS)


def _explain(jobs: socket.socket, error: BaseException) -> None:
    text = repr(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    try:
        jobs.send(json.dumps({"failed": text}).encode())
    except OSError:
        pass


def _bash(script: int) -> list[str]:
    size = os.fstat(script).st_size
    if size <= INLINE_BYTES:
        text = os.pread(script, size, 0)
        if b"\0" in text:
            raise ValueError("the command has a NUL character, which no argument can carry")
        return ["bash", "--noprofile", "--norc", "-c", os.fsdecode(text)]
    os.set_inheritable(script, True)
    return ["bash", "--noprofile", "--norc", "-c", f". /dev/fd/{script}"]


def _exec_bwrap(
    job: dict[str, Any], prepared: Prepared, argv: list[str], kept: list[int], status: int, block: int
) -> NoReturn:
    read_end, write_end = os.pipe()
    os.write(write_end, prepared.filter)
    os.close(write_end)
    arguments = [prepared.bwrap, *prepared.bwrap_arguments, "--seccomp", str(read_end), "--json-status-fd", str(status)]
    passed = [read_end, status]
    if prepared.limits_processes:
        arguments += ["--block-fd", str(block)]
        passed.append(block)
    for descriptor in passed:
        os.set_inheritable(descriptor, True)
    arguments += bubblewrap.job_arguments(
        workspace=job["workspace"],
        writable=job["writable"],
        cwd=job["cwd"],
        read_only=job["read_only"],
        tmp_bytes=job["limits"]["tmp_bytes"],
    )
    _close_all_but([*kept, *passed])
    # The environment is inherited: arguments can be read by every user of the host, and it may hold secrets.
    os.execve(prepared.bwrap, [*arguments, *argv], job["env"])


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _reset_signals() -> None:
    # Python ignores these two, the zygote some more; what is ignored or blocked would stay so across exec.
    for number in (
        signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
    ):  # fmt: skip
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _ruleset(prepared: Prepared) -> int:
    ruleset = landlock.create(prepared.abi)
    for descriptor in prepared.readable:
        landlock.grant(ruleset, prepared.abi, descriptor, landlock.READ)
    for descriptor in prepared.devices:
        landlock.grant(ruleset, prepared.abi, descriptor, landlock.DEVICE)
    return ruleset


def _limit(limits: dict[str, int]) -> None:
    os.umask(0o022)
    os.nice(_NICENESS)
    _die_first()
    cpu_s = int(limits["cpu_s"]) + 1
    for what, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        (resource.RLIMIT_FSIZE, limits["file_bytes"], limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
        # The watch ends a tree at its limit; this bounds what one process can take between two looks.
        (resource.RLIMIT_DATA, 2 * limits["memory_bytes"], 2 * limits["memory_bytes"]),
    ):
        _, ceiling = resource.getrlimit(what)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(what, (soft, hard))


def _die_first() -> None:
    # When the host runs out of memory, commands go before workers. The file is root's while not dumpable.
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(descriptor, b"800")
    except OSError:
        pass  # a stricter system; nothing depends on it
    finally:
        os.close(descriptor)


def _limit_processes(processes: int) -> None:
    # Counted over all of a uid, so what runs already is added: the whole system's tasks are the one cheap bound.
    with open("/proc/loadavg", "rb") as file:
        tasks = int(file.read().split()[3].split(b"/")[1])
    wanted = tasks + processes
    _, ceiling = resource.getrlimit(resource.RLIMIT_NPROC)
    if ceiling != resource.RLIM_INFINITY:
        wanted = min(wanted, ceiling)
    resource.setrlimit(resource.RLIMIT_NPROC, (wanted, wanted))


def _drop_capabilities() -> None:
    # Root would keep its capabilities, which Landlock does not bound: they go, and exec can't bring them back.
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
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
