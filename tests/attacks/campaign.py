"""Every attack against one wall, and what came of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.walled import Commands, alive
from worker.process import Limits
from worker.sandbox import Sandbox
from worker.workspace import Workspace

_HERE = Path(__file__).parent
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")


class Attack(NamedTuple):
    """`name` is a function of attacker.py; `title` is what the page says."""

    name: str
    title: str
    needs_signals_abi: bool = False


ATTACKS = (
    Attack("write_outside", "make a file outside the workspace"),
    Attack("write_over", "write over a file outside"),
    Attack("truncate", "truncate a file outside"),
    Attack("remove", "remove a file outside"),
    Attack("rename_out", "rename a file of the workspace to the outside"),
    Attack("rename_in", "rename a file from outside into the workspace"),
    Attack("hard_link_in", "write to a file outside through a hard link"),
    Attack("through_link", "write to the outside through a symbolic link"),
    Attack("chmod", "change the mode of a file outside"),
    Attack("utime", "change the times of a file outside"),
    Attack("stat", "see that a file outside exists, and its size"),
    Attack("read_outside", "read another workspace, or the worker's files"),
    Attack("list_outside", "list a directory outside"),
    Attack("list_system", "look into /var, /home or /root"),
    Attack("inherited_environment", "find the worker's secrets in the environment"),
    Attack("inherited_descriptors", "find an open descriptor of the worker's"),
    Attack("read_environment", "read the worker's environment in /proc"),
    Attack("read_memory", "read the worker's memory in /proc"),
    Attack("read_memory_by_call", "read the worker's memory by process_vm_readv"),
    Attack("list_processes", "see the host's processes"),
    Attack("tcp", "reach Redis by TCP"),
    Attack("udp", "send a UDP datagram"),
    Attack("unix_socket", "reach Redis by a Unix socket outside"),
    Attack("unix_socket_inside", "reach a Unix socket that lies in the workspace"),
    Attack("abstract_socket", "reach an abstract Unix socket"),
    Attack("datagram_pair", "turn a socket pair towards a Unix socket"),
    Attack("netlink", "open a netlink socket"),
    Attack("signal_worker", "signal the worker", needs_signals_abi=True),
    Attack("user_namespace", "make a user namespace by unshare"),
    Attack("user_namespace_by_clone", "make a user namespace by clone"),
    Attack("gain_privileges", "gain by a setuid program", needs_signals_abi=True),
    Attack("ptrace", "trace the worker"),
    Attack("inject_typing", "type into a terminal (TIOCSTI)"),
    Attack("daemon", "leave a daemon behind (double fork, setsid)"),
    Attack("mount", "mount something"),
    Attack("set_kernel", "write kernel settings in /proc/sys"),
    Attack("shared_memory", "reach the worker's System V shared memory"),
    Attack("bpf", "use bpf"),
    Attack("keyring", "use the kernel's key rings"),
    Attack("io_uring", "use io_uring"),
    Attack("page_faults", "use userfaultfd"),
)

WORDS_OF_VICTIM = {
    "tcp": "tcp", "udp": "udp", "unix_socket": "unix", "unix_socket_inside": "inside", "abstract_socket": "abstract",
    "datagram_pair": "pair", "signal_worker": "signalled",
}  # fmt: skip
"""What the victim says when an attack has really arrived."""


class Campaign:
    """One wall under attack in a directory of its own."""

    def __init__(self, sandbox: Sandbox, root: Path) -> None:
        self.outside = root / "outside"
        self.inside = root / "inside"
        self.outside.mkdir(parents=True)
        self.inside.mkdir()
        shutil.copy(_HERE / "attacker.py", self.inside)
        self._workspace = Workspace.open(str(self.inside))
        self._commands = Commands(self._workspace, sandbox, Limits(wall_s=20))
        marker = f"reef-victim-{time.monotonic_ns()}"
        self._victim = subprocess.Popen(
            [PYTHON or sys.executable, str(_HERE / "victim.py"), str(self.outside), str(self.inside), marker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"SECRET": "s3cr3t-in-environment"},
        )
        assert self._victim.stdout is not None
        self._at: dict[str, Any] = json.loads(self._victim.stdout.readline())
        self._reset()
        self._at |= {"outside": str(self.outside), "marker": marker, "daemon": f"reef-daemon-{time.monotonic_ns()}"}

    def run(self) -> dict[str, str]:
        """`REACHED`, or how it was stopped, for each attack."""
        found: dict[str, str] = {}
        plain = [attack.name for attack in ATTACKS if attack.name not in _EFFECTS and attack.name != "daemon"]
        found |= self._try(plain)
        for name, happened in _EFFECTS.items():
            self._reset()
            said = self._try([name])[name]
            found[name] = "REACHED" if happened(self) else said.replace("REACHED", "stopped: without effect")
        self._try(["daemon"])
        found["daemon"] = "REACHED" if alive(self._at["daemon"]) else "stopped: it died with the command"
        return found

    def _reset(self) -> None:
        file = self.outside / "file"
        file.unlink(missing_ok=True)
        file.write_text("secret")
        file.chmod(0o600)
        os.utime(file, (1000, 1000))
        for left in (self.outside / "written", self.outside / "moved", self.inside / "door", self.inside / "linked"):
            left.unlink(missing_ok=True)

    def _try(self, names: list[str]) -> dict[str, str]:
        output = self._commands.run(f"python3 attacker.py {','.join(names)} '{json.dumps(self._at)}'")
        found = dict(line.split("\t", 1) for line in output.stdout.splitlines())
        assert found.keys() == set(names), output
        return found

    def close(self) -> str:
        """Ends the victim; everything it has said."""
        said, _ = self._victim.communicate(timeout=20)
        self._workspace.close()
        return said.decode()


def _file_changed(campaign: Campaign) -> bool:
    file = campaign.outside / "file"
    if not file.exists():
        return True
    found = file.stat()
    return (found.st_mode & 0o777, found.st_mtime, found.st_size) != (0o600, 1000, 6) or file.read_text() != "secret"


_EFFECTS: dict[str, Callable[[Campaign], bool]] = {
    "write_outside": lambda campaign: (campaign.outside / "written").exists(),
    "through_link": lambda campaign: (campaign.outside / "written").exists(),
    "rename_out": lambda campaign: (campaign.outside / "moved").exists(),
    **dict.fromkeys(("write_over", "truncate", "remove", "rename_in", "hard_link_in", "chmod", "utime"), _file_changed),
}
"""What is believed is what happened outside, where that can be seen."""
