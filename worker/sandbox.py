"""The wall around commands: which one the host offers, tried for real before it is trusted."""

from __future__ import annotations

import logging
import os
import select
import shutil
import socket
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from worker import bubblewrap, landlock, seccomp
from worker.bubblewrap import SYSTEM_PATH
from worker.delegation import NotDelegated, claim
from worker.probes import Probe, probe
from worker.slots import Launch, LauncherFailed, Slot, Slots

log = logging.getLogger("toolreef")

SandboxMode = Literal["require", "prefer", "off"]
Tier = Literal["bwrap", "landlock"]

TIERS: tuple[Tier, ...] = ("bwrap", "landlock")
"""Strongest first."""

REMEDY = (
    "let the worker make user namespaces (kernel.unprivileged_userns_clone, user.max_user_namespaces, an AppArmor "
    "profile for bwrap, or a container seccomp profile that passes unshare, clone and mount), or give it a kernel of "
    "6.7 or newer with Landlock enabled; or set the sandbox to prefer or off if you must run commands without a wall"
)

_SELF_TEST_LIMITS: dict[str, float] = {
    "cpu_s": 10,
    "memory_bytes": 1 << 30,
    "processes": 64,
    "file_bytes": 1 << 20,
    "open_files": 256,
    "tmp_bytes": 1 << 20,
}
_SELF_TEST_TIMEOUT_S = 20.0
_SELF_TEST_SCRIPT = """\
(echo x > "$OUTSIDE/written") 2>/dev/null && echo "wrote outside"
(read -r x < "$OUTSIDE/secret") 2>/dev/null && echo "read outside"
(exec 3<>/dev/tcp/127.0.0.1/$PORT) 2>/dev/null && echo "connected"
echo x > inside && echo done
"""
_SAY_AGAIN_S = 60.0


class SandboxUnavailable(Exception):
    """No tier works here. `problem` names the call that failed, `remedy` says what to change; the message has both."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.problem = message
        self.remedy = remedy


@dataclass(slots=True)
class Sandbox:
    """The wall commands are run behind, and the slots they run in.

    `tier` is "bwrap+seccomp", "landlock+seccomp" or "none". `read_only` are directories that commands may read besides
    the system's: the operator's word, never a call's. `problems` says why a better tier was not taken. `limits` says
    what keeps a command to its limits: "cgroup v2 (memory, pids)", or "rlimits" and why no cgroup does.
    """

    tier: str
    slots: Slots
    read_only: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    wanted: bool = True
    limits: str = "rlimits"
    _said_at: float = field(default=0.0, repr=False)

    def take(self) -> Slot:
        """A slot for one command.

        Raises:
            LauncherFailed: the launcher is gone and does not start again.
        """
        if self.tier == "none" and self.wanted and time.monotonic() - self._said_at > _SAY_AGAIN_S:
            self._said_at = time.monotonic()
            log.critical("commands run without a sandbox: %s", "; ".join(self.problems))
        return self.slots.take()

    def close(self) -> None:
        """End the launcher, and every command that still runs."""
        self.slots.close()


def detect(
    mode: SandboxMode = "require",
    *,
    read_only: tuple[str, ...] = (),
    tiers: tuple[Tier, ...] = TIERS,
    divide_cgroup: bool = False,
) -> Sandbox:
    """The best tier that the host offers, tried with its real profile. Takes some tenths of a second.

    `divide_cgroup` gives each command a cgroup of its own where this process' is delegated to it: for workers, since it
    moves all of them to a leaf.

    Raises:
        SandboxUnavailable: mode is `require` and no tier works.
    """
    bash = shutil.which("bash", path=SYSTEM_PATH)
    if bash is None:
        raise SandboxUnavailable(f"there is no bash in {SYSTEM_PATH}", "install bash")
    problems: list[str] = []
    cgroup, limits = _divided(bash) if divide_cgroup else ({}, "rlimits")
    if mode != "off":
        for name, plan in _plans(tiers, bash, problems):
            try:
                slots = Slots({**plan, **cgroup})
                return _tried(Sandbox(f"{name}+seccomp", slots, read_only, tuple(problems), limits=limits))
            except LauncherFailed as error:
                problems.append(f"{name}: {error}")
    if mode == "require":
        raise SandboxUnavailable("commands can't be walled in: " + "; ".join(problems), REMEDY)
    slots = Slots({"tier": "none", "bash": bash, **cgroup})
    return Sandbox("none", slots, read_only, tuple(problems), mode == "prefer", limits)


def _divided(bash: str) -> tuple[dict[str, Any], str]:
    """What the launcher needs to know to give each command a cgroup, tried once, and what limits commands in words."""
    try:
        delegated = claim()
        plan = {"cgroup": delegated.path, "controllers": delegated.controllers}
        slots = Slots({"tier": "none", "bash": bash, **plan})
        try:
            with tempfile.TemporaryDirectory(prefix="toolreef-") as place:
                _run_blocking(slots, "true", place, {}, ())
        finally:
            slots.close()
    except (NotDelegated, LauncherFailed) as problem:
        log.info("limits: rlimits: %s", problem)
        return {}, f"rlimits: {problem}"
    return plan, delegated.in_words()


def describe(mode: SandboxMode = "require") -> list[Probe]:
    """What the host offers for the wall, then each tier tried, then what `mode` makes of it. For `toolreef doctor`."""
    found = probe()
    works: list[str] = []
    for tier in TIERS:
        try:
            detect("require", tiers=(tier,)).close()
            works.append(f"{tier}+seccomp")
            found.append(Probe(f"sandbox {tier}", True, "passes its self-test"))
        except SandboxUnavailable as error:
            found.append(Probe(f"sandbox {tier}", False, error.problem, error.remedy))
    tier_taken = works[0] if works and mode != "off" else "none"
    needed = mode == "require"
    found.append(Probe("sandbox", bool(works) or not needed, f"{mode}: {tier_taken}", REMEDY, needed))
    return found


def _plans(tiers: tuple[Tier, ...], bash: str, problems: list[str]) -> list[tuple[str, dict[str, Any]]]:
    plans: list[tuple[str, dict[str, Any]]] = []
    try:
        seccomp.assemble(tcp=False, system_v=False)
    except seccomp.Unsupported as error:
        problems.append(f"seccomp: {error}")
        return plans
    if "bwrap" in tiers:
        found = bubblewrap.candidates()
        if not found:
            problems.append("bwrap: not installed")
        for binary in found:
            version = bubblewrap.version(binary)
            if version >= bubblewrap.MINIMUM_VERSION:
                plans.append(("bwrap", {"tier": "bwrap", "bash": bash, "bwrap": binary}))
            else:
                problems.append(f"bwrap: {binary} is older than {'.'.join(map(str, bubblewrap.MINIMUM_VERSION))}")
    if "landlock" in tiers:
        version_of_kernel = landlock.abi()
        if version_of_kernel >= landlock.MINIMUM_ABI:
            plans.append(("landlock", {"tier": "landlock", "bash": bash}))
        else:
            problems.append(f"landlock_create_ruleset: ABI {version_of_kernel}, {landlock.MINIMUM_ABI} is needed")
    return plans


def _tried(sandbox: Sandbox) -> Sandbox:
    """The same sandbox, if it lets through what it should and stops what it should.

    Raises:
        LauncherFailed: it does not; the launcher has been ended.
    """
    try:
        _self_test(sandbox.slots, sandbox.read_only)
    except BaseException:
        sandbox.close()
        raise
    return sandbox


def _self_test(slots: Slots, read_only: tuple[str, ...]) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="toolreef-") as root,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        inside, outside = os.path.join(root, "inside"), os.path.join(root, "outside")
        os.mkdir(inside)
        os.mkdir(outside)
        with open(os.path.join(outside, "secret"), "w", encoding="ascii") as file:
            file.write("secret\n")
        env = {"PATH": SYSTEM_PATH, "OUTSIDE": outside, "PORT": str(listener.getsockname()[1])}
        said, complaint = _run_blocking(slots, _SELF_TEST_SCRIPT, inside, env, read_only)
        written = os.path.exists(os.path.join(outside, "written"))
        if said != "done" or written or not os.path.exists(os.path.join(inside, "inside")):
            raise LauncherFailed(f"self-test: {said or complaint or 'no output'}"[:500])


def _run_blocking(
    slots: Slots, script: str, workspace: str, env: dict[str, str], read_only: tuple[str, ...]
) -> tuple[str, str]:
    # At start there is no event loop yet, and nothing else to do.
    stdout, stdout_end = os.pipe()
    stderr, stderr_end = os.pipe()
    directory = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    slot = slots.take()
    try:
        launch = Launch(
            script=script.encode(),
            workspace=workspace,
            workspace_fd=directory,
            cwd=workspace,
            cwd_fd=directory,
            env=env,
            limits=_SELF_TEST_LIMITS,
            read_only=read_only,
        )
        try:
            slot.start(launch, stdout_end, stderr_end)
        finally:
            os.close(stdout_end)
            os.close(stderr_end)
        report: dict[str, Any] | None = None
        deadline = time.monotonic() + _SELF_TEST_TIMEOUT_S
        while report is None or report["event"] != "ended":
            if not select.select([slot.control], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise LauncherFailed(f"self-test: no end within {_SELF_TEST_TIMEOUT_S:g} s")
            report = slot.hear()
        if failure := slot.setup_failure():
            raise LauncherFailed(failure)
        said, complaint = (os.read(end, 65536).decode("utf-8", "replace").strip() for end in (stdout, stderr))
    except BaseException:
        slot.close()
        raise
    finally:
        for descriptor in (stdout, stderr, directory):
            os.close(descriptor)
    slots.give_back(slot)
    return said, complaint
