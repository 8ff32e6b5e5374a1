"""One agent process under chaos: it submits, repeats, cancels, waits and notes in its own book what it was told.

    python -m tests.chaos.producer URL QUEUE BOOK NAME SEED ROLE PATIENCE_S

Runs until SIGTERM, then waits for what is still on its way. ROLE: plain, poison, skewed or sleeper. What has not been
answered after PATIENCE_S counts as unseen.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from contracts.client import Client, Submitted
from contracts.connection import UNREACHABLE
from contracts.replies import TerminalReply
from tests.chaos.ledger import COMMANDS, EDITS, EDITS_END, Book

SESSIONS = 3
SKEW_S = 3600.0
BIG_BYTES = 1_000_000
Asked = tuple[str, dict[str, Any], str]


class Producer:
    """Drives some sessions side by side. Each wait belongs to one call that its book knows."""

    def __init__(self, client: Client, book: Book, name: str, seed: int, role: str, patience_s: float) -> None:
        self._patience_s = patience_s
        self._client, self._book, self._name, self._role = client, book, name, role
        self._random = random.Random(seed)
        self._count = 0
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Until it is told to stop, and everything has been answered."""
        await asyncio.gather(*(self._drive(f"{self._name}s{number}") for number in range(SESSIONS)))

    async def _drive(self, session: str) -> None:
        acts: list[tuple[int, Callable[[str], Coroutine[Any, Any, None]]]] = [
            (12, self._one),
            (4, self._slow),
            (4, self._cancelled),
            (4, self._repeated),
            (2, self._burst),
            (2, self._short_of_time),
        ]
        if self._role == "poison":
            acts.append((3, self._poison))
        if self._role == "sleeper":
            acts = [(1, self._asleep)]
        weights, choices = [weight for weight, _ in acts], [act for _, act in acts]
        while not self.stopping.is_set():
            await self._random.choices(choices, weights)[0](session)
            await self._pause(self._random.uniform(0.0, 0.15))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            pass

    # -- what it asks for

    def _new(self) -> str:
        self._count += 1
        return f"{self._name}c{self._count}"

    def _command(self, call: str, between: str = "") -> Asked:
        return (
            "run_command",
            {"command": f"echo +{call} >> {COMMANDS}; {between} echo -{call} >> {COMMANDS}"},
            "command",
        )

    def _any(self, call: str) -> Asked:
        new_text = f"={call}\n{EDITS_END}"
        big = f"head -c {BIG_BYTES} /dev/zero | tr '\\0' x;"
        asked: list[tuple[int, Asked]] = [
            (10, self._command(call)),
            (5, ("edit_file", {"path": EDITS, "old_text": EDITS_END, "new_text": new_text}, "edit")),
            (5, ("write_file", {"path": f"file-{call}", "content": f"file-{call}"}, "file")),
            (4, ("read_file", {"path": EDITS}, "")),
            (4, ("list_directory", {"path": "."}, "")),
            (2, ("search_files", {"path": ".", "pattern": "*.txt"}, "")),
            (1, self._command(call, big)),
        ]
        return self._random.choices([each for _, each in asked], [weight for weight, _ in asked])[0]

    async def _one(self, session: str) -> None:
        call = self._new()
        await self._ask(session, call, self._any(call))

    async def _slow(self, session: str) -> None:
        call = self._new()
        await self._ask(session, call, self._command(call, f"sleep {self._random.uniform(0.2, 2.5):.2f};"))

    async def _short_of_time(self, session: str) -> None:
        call = self._new()
        await self._ask(session, call, self._command(call, "sleep 0.3;"), deadline_s=self._random.uniform(0.1, 1.0))

    async def _burst(self, session: str) -> None:
        calls = [self._new() for _ in range(8)]
        urgency = ["interactive", "interactive", "batch"]
        await asyncio.gather(
            *(self._ask(session, c, self._any(c), priority=self._random.choice(urgency)) for c in calls)
        )

    async def _poison(self, session: str) -> None:
        """The rig kills whichever worker runs a command that makes such a file."""
        call = self._new()
        await self._ask(session, call, self._command(call, f"touch poison-{call}; sleep 3;"))

    async def _cancelled(self, session: str) -> None:
        call = self._new()
        asking = asyncio.ensure_future(
            self._ask(session, call, self._command(call, f"sleep {self._random.uniform(0, 0.6):.2f};"))
        )
        await self._pause(self._random.uniform(0, 0.6))
        try:
            await self._client.cancel(session, call)
        except UNREACHABLE:
            pass  # the call then runs to its end, which is as good for the count
        await asking

    async def _repeated(self, session: str) -> None:
        """The same call beside itself and after itself: every answer must be that of one run."""
        call = self._new()
        asked = self._any(call)
        await asyncio.gather(*(self._ask(session, call, asked) for _ in range(self._random.randint(2, 3))))
        await self._ask(session, call, asked)

    async def _asleep(self, session: str) -> None:
        """A consumer that looks for its answers long after they came."""
        calls = [self._new() for _ in range(self._random.randint(3, 10))]
        accepted = [call for call in calls if await self._submit(session, call, self._any(call)) == "accepted"]
        await self._pause(self._random.uniform(2.0, 6.0))
        await asyncio.gather(*(self._wait(session, call) for call in accepted))

    # -- how it asks

    async def _ask(self, session: str, call: str, asked: Asked, **options: Any) -> None:
        if await self._submit(session, call, asked, **options) == "accepted":
            await self._wait(session, call)

    async def _submit(self, session: str, call: str, asked: Asked, **options: Any) -> str:
        """accepted, told (settled at once), refused or unknown. A submit that was cut off is mostly repeated."""
        tool, args, mark = asked
        self._book.note("begin", call, session=session, mark=mark)
        while True:
            try:
                async with asyncio.timeout(10):
                    submitted = await self._client.submit(tool, args, session=session, call_id=call, **options)
            except (*UNREACHABLE, TimeoutError):
                self._book.note("unknown", call)
                if self._random.random() < 0.2:
                    return "unknown"
                await self._pause(self._random.uniform(0.05, 0.5))
                continue
            answer = self._read(call, submitted)
            if answer != "refused" or self._random.random() < 0.5 or self.stopping.is_set():
                return answer
            await self._pause(0.5)

    def _read(self, call: str, submitted: Submitted) -> str:
        settled = submitted.settled
        code = settled.error.code if settled is not None and settled.error else None
        if settled is None or code == "in_flight":
            self._book.note("accepted", call)
            return "accepted"
        if code == "unavailable":
            self._book.note("refused", call)
            return "refused"
        self._book.note("accepted", call)
        self._tell(call, settled)
        return "told"

    async def _wait(self, session: str, call: str) -> None:
        until = time.monotonic() + self._patience_s
        while True:
            try:
                self._tell(call, await self._client.wait(session, call, timeout_s=until - time.monotonic()))
                return
            except TimeoutError as error:
                if time.monotonic() >= until - 0.1:
                    self._book.note("unseen", call, why=repr(error))
                    return
            except UNREACHABLE:
                pass
            await asyncio.sleep(0.2)

    def _tell(self, call: str, reply: TerminalReply) -> None:
        kind = type(reply).__name__.lower()
        self._book.note("told", call, kind=kind, code=reply.error.code if reply.error else None)


def skew_clock() -> None:
    """This process' wall clock is an hour ahead, and steps to and fro by a second."""
    true_ns, steady = time.time_ns, time.monotonic

    def skewed() -> int:
        return true_ns() + int((SKEW_S + steady() // 4 % 2) * 1e9)

    time.time_ns = skewed


async def main(url: str, queue: str, book: str, name: str, seed: str, role: str, patience_s: str) -> None:
    """Until SIGTERM, and then until all is answered."""
    if role == "skewed":
        skew_clock()
    async with Client.connect(url, queue=queue) as client:
        producer = Producer(client, Book(Path(book)), name, int(seed), role, float(patience_s))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, producer.stopping.set)
        print("ready", flush=True)
        await producer.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
