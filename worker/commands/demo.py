"""toolreef demo: a scripted agent session on an embedded Redis, with a real worker process."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contracts.approver import Approver
from contracts.client import Client
from contracts.orchestrator import Orchestrator
from contracts.replies import Completed, Denied, TerminalReply
from worker.commands.connection import FAULT, OK, complain
from worker.embedded import EmbeddedRedis
from worker.settings import environment_with

SESSION = "demo"
START_TIMEOUT_S = 20.0
CALL_TIMEOUT_S = 15.0
MAX_SHOWN_CHARS = 140
SHOWN = ("path", "bytes", "line", "entries", "matches", "text", "stdout", "stderr", "exit_code", "version", "state")
"""What the demo shows of an output."""
# In two parts, so that no scanner takes this file for a leak; the key is from Amazon's own documentation.
EXAMPLE_KEY = "AKIA" + "IOSFODNN7EXAMPLE"


class DemoFailed(Exception):
    """A step of the demo did not end as it should."""


def register(commands: Any) -> None:
    """Adds the command."""
    parser: ArgumentParser = commands.add_parser("demo", help="a scripted session: every tool, a denial, a plan, taint")
    parser.set_defaults(run=run)


def run(_: Namespace) -> int:
    """Runs `toolreef demo` in a directory of its own, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="toolreef-demo-") as folder:
        state = Path(folder)
        with EmbeddedRedis.start(state) as server, _worker(state):
            print("An embedded Redis and one worker process are up. An agent's session begins.")
            try:
                asyncio.run(_tell(server.url))
            except (DemoFailed, TimeoutError) as error:
                complain(f"demo: {str(error) or 'no reply in time'}; the worker's last words:")
                sys.stderr.write((state / "worker.log").read_text(errors="replace")[-2000:])
                return FAULT
    return OK


@contextlib.contextmanager
def _worker(state: Path) -> Iterator[None]:
    env = environment_with(
        REDIS_URL="", TOOLREEF_STATE=str(state), TOOLREEF_QUEUE="default", TOOLREEF_LEVELS="finance/**=CONFIDENTIAL"
    )
    command = [sys.executable, "-m", "worker", "worker", "--supervised"]
    log = (state / "worker.log").open("wb")
    worker = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(timeout=30)
        log.close()


async def _tell(url: str) -> None:
    async with (
        Client.connect(url) as client,
        Orchestrator.connect(url) as orchestrator,
        Approver.connect(url) as approver,
    ):
        story = _Story(client, orchestrator, approver)
        await story.wait_for_worker()
        await story.files_and_commands()
        await story.denials()
        await story.plan_mode()
        await story.taint()
        print("\nThat was all seven tools, four refusals, one approved plan, and a taint that only rises.")


class _Story:
    def __init__(self, client: Client, orchestrator: Orchestrator, approver: Approver) -> None:
        self._client, self._orchestrator, self._approver = client, orchestrator, approver

    async def wait_for_worker(self) -> None:
        """Until the first heartbeat."""
        async with asyncio.timeout(START_TIMEOUT_S):
            while not (await self._orchestrator.status()).workers:  # noqa: ASYNC110 - Redis announces no heartbeats
                await asyncio.sleep(0.02)

    async def files_and_commands(self) -> None:
        """Each of the six tools once."""
        script = "import sys\n\nprint('hello', *sys.argv[1:])\n"
        _title("Files: written whole, edited in one place, listed, searched, read")
        await self._step("write_file", {"path": "src/hello.py", "content": script})
        edit = {"path": "src/hello.py", "old_text": "'hello'", "new_text": "'hello,'"}
        await self._step("edit_file", edit)
        await self._step("list_directory", {"path": "."})
        await self._step("search_files", {"path": ".", "pattern": r"print\(", "content_search": True})
        await self._step("read_file", {"path": "src/hello.py"})
        _title("Commands: in a sandbox without network")
        await self._step("run_command", {"command": "echo from $PWD | sed 's,.*/,.../,'; ls src; exit 3"})
        escape = "touch /usr/escaped\n(exec 3<>/dev/tcp/127.0.0.1/6379)\ncat /proc/1/environ\n"
        await self._step("write_file", {"path": "try.sh", "content": escape})
        await self._step("run_command", {"command": "bash try.sh"})

    async def denials(self) -> None:
        """What PRE_TOOL_CALL stops."""
        _title("Denied before anything runs")
        await self._step("run_command", {"command": "env X=1 bash -c 'su''do rm -rf /'"}, Denied)
        await self._step("write_file", {"path": "../elsewhere.txt", "content": "x"}, Denied)

    async def plan_mode(self) -> None:
        """Blocked, proposed, approved, let through."""
        _title("Plan mode: nothing is written until somebody who is no agent approves the plan")
        await self._orchestrator.change_session(SESSION, mode="plan")
        write = {"path": "NOTES.md", "content": "# Notes\n"}
        await self._step("write_file", write, Denied)
        await self._step("plan.propose", {"summary": "Add notes", "steps": [{"description": "write NOTES.md"}]})
        await self._step("write_file", write, Denied)
        approval = await self._approver.approve(SESSION, approver="demo-approver")
        print(f"  the approver approves plan {approval.digest[:12]}...")
        await self._step("write_file", write)
        await self._orchestrator.change_session(SESSION, mode="normal")

    async def taint(self) -> None:
        """Reading raises it, and the workspace remembers."""
        _title("Taint: what a session has seen, it is marked with")
        await self._step("write_file", {"path": "finance/q3.csv", "content": f"total,42\nkey,{EXAMPLE_KEY}\n"})
        await self._step("read_file", {"path": "src/hello.py"})
        await self._step("read_file", {"path": "finance/q3.csv"})
        view = await self._orchestrator.show_session(SESSION)
        print(f"  the session's taint is now {view.taint.value}")
        await self._step("write_file", {"path": "copy.txt", "content": "what it saw may be in here"})
        view = await self._orchestrator.show_session(SESSION)
        print(f"  so its workspace's level has risen to {view.workspace_level.value}")

    async def _step(self, tool: str, args: dict[str, Any], wanted: type[TerminalReply] = Completed) -> None:
        reply = await self._client.call(tool, args, session=SESSION, timeout_s=CALL_TIMEOUT_S)
        print(f"  {tool} {_short(args)}\n    -> {_outcome(reply)}")
        if not isinstance(reply, wanted):
            raise DemoFailed(f"{tool} should have been {wanted.__name__.lower()}")


def _title(text: str) -> None:
    print(f"\n{text}")


def _short(fields: dict[str, Any]) -> str:
    words = " ".join(f"{key}={value!r}" for key, value in fields.items())
    return words if len(words) <= MAX_SHOWN_CHARS else words[: MAX_SHOWN_CHARS - 3] + "..."


def _outcome(reply: TerminalReply) -> str:
    where = f"[{reply.level.value}, taint {reply.taint.value}, {reply.run_ms} ms]"
    if reply.error is not None:
        rule = f" ({reply.error.policy}/{reply.error.rule})" if reply.error.rule else ""
        return f"{type(reply).__name__.upper()} {reply.error.code}: {reply.error.message}{rule} {where}"
    shown = {key: reply.output[key] for key in SHOWN if reply.output.get(key) not in (None, "")}
    return f"completed {_short(shown)} {where}"
