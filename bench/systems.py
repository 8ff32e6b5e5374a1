"""The systems that are compared, and the processes of a measurement."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_ENVIRONMENTS = {"peers": "requirements.txt", "taskiq": "requirements-taskiq.txt"}
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class System:
    """`module` is its file in bench/peers, `installed` its environment in bench/.venv or None for the project's own."""

    name: str
    module: str
    environment: Mapping[str, str] = field(default_factory=dict)
    installed: str | None = "peers"
    note: str = ""


OURS = System(name="toolreef", module="toolreef", installed=None, note="uvloop")
FLOOR = System(name="floor", module="floor", note="raw XADD / XREAD, uvloop")
PEERS = (
    System(name="arq", module="arq", note="poll 0.5 s (default), uvloop"),
    System(name="arq 10 ms", module="arq", environment={"BENCH_POLL_S": "0.01"}, note="poll 10 ms, uvloop"),
    System(name="SAQ", module="saq", note="uvloop"),
    System(
        name="taskiq list",
        module="taskiq",
        installed="taskiq",
        environment={"BENCH_BROKER": "list"},
        note="result asked for every 2 ms, uvloop",
    ),
    System(
        name="taskiq stream",
        module="taskiq",
        installed="taskiq",
        environment={"BENCH_BROKER": "stream"},
        note="result asked for every 2 ms, uvloop",
    ),
    System(name="streaq", module="streaq", note="uvloop"),
    System(name="dramatiq", module="dramatiq", note="threads"),
)


def prepare_environments() -> None:
    """Make the peers' environments from the pinned requirements, unless they stand."""
    for name, requirements in _ENVIRONMENTS.items():
        wanted = (HERE / requirements).read_text()
        stamp = HERE / ".venv" / name / ".installed"
        if stamp.is_file() and stamp.read_text() == wanted:
            continue
        print(f"installing bench/{requirements} into bench/.venv/{name}", file=sys.stderr)
        venv.create(stamp.parent, with_pip=True)
        install = ["-m", "pip", "install", "-qq", "--require-hashes", "-r", str(HERE / requirements)]
        subprocess.run([python_of(name), *install], check=True)
        stamp.write_text(wanted)


def python_of(installed: str | None) -> str:
    """The interpreter of an environment."""
    return sys.executable if installed is None else str(HERE / ".venv" / installed / "bin" / "python")


def versions_of(installed: str | None, packages: list[str]) -> dict[str, str]:
    """The installed versions of packages in an environment."""
    code = "import sys, json, importlib.metadata as m; print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
    found = subprocess.run([python_of(installed), "-c", code, *packages], check=True, capture_output=True, text=True)
    versions: dict[str, str] = json.loads(found.stdout)
    return versions


def _start(
    system: System, role: list[str], url: str, directory: Path, environment: Mapping[str, str], **pipes: Any
) -> subprocess.Popen[str]:
    surroundings = {"BENCH_REDIS_URL": url, "BENCH_DIR": str(directory), **system.environment, **environment}
    with open(directory / f"{system.module}.log", "a") as log:
        return subprocess.Popen(
            [python_of(system.installed), "-m", "bench.load", *role],
            cwd=HERE.parent,
            env={**os.environ, **surroundings},
            text=True,
            start_new_session=True,
            **({"stdout": log, "stderr": log} | pipes),
        )


def _stop(process: subprocess.Popen[str]) -> None:
    """End a process group that we started: kindly, then not."""
    for kind, patience_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, kind)
            process.wait(patience_s)
            if kind is signal.SIGTERM:
                os.killpg(process.pid, signal.SIGKILL)  # a child that outlived its parent
            return
        except ProcessLookupError:
            process.wait(1)
            return
        except subprocess.TimeoutExpired:
            continue


class Worker:
    """One worker process (with whatever children its system needs)."""

    def __init__(self, system: System, concurrency: int, url: str, directory: Path, *, tool: str = "read") -> None:
        environment = {"BENCH_CONCURRENCY": str(concurrency), "BENCH_NOOP": "1" if tool == "noop" else ""}
        role = ["serve", system.module, str(concurrency)]
        self._process = _start(system, role, url, directory, environment, stdin=subprocess.DEVNULL)

    def _members(self) -> list[int]:
        found = [self._process.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
        return found

    def cpu_s(self) -> float:
        """CPU seconds of the process and its children so far."""
        ticks = 0
        for pid in self._members():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(value) for value in fields[11:15])
        return ticks / _TICKS_PER_S

    def rss_mb(self) -> float:
        """Resident memory of the largest process: the one that does the work."""
        sizes = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._members()]
        return max(sizes) * _PAGE_BYTES / 1e6

    def pause(self) -> None:
        """Hold it where it is (SIGSTOP), so that a queue can be filled before a warm worker."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it."""
        self.resume()
        _stop(self._process)


class MeasureFailed(Exception):
    """A system could not do what a measurement asks."""


class Client:
    """One load process."""

    def __init__(self, system: System, url: str, directory: Path) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = _start(system, ["client", system.module], url, directory, {}, **pipes)

    def ask(self, measure: str, **parameters: Any) -> dict[str, Any]:
        """Have it measure something.

        Raises:
            MeasureFailed: it could not.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps({"measure": measure, **parameters}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the client process ended, see its log"}
        if "error" in answer:
            raise MeasureFailed(f"{measure}: {answer['error']}")
        return answer

    def stop(self) -> None:
        """End it."""
        _stop(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
