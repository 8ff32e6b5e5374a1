"""The rig: a Redis with an append-only file, worker processes, producer processes, and the hands that harm them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import redis

from contracts import keys
from tests.chaos.ledger import EDITS, EDITS_END, Call
from tests.chaos.producer import SESSIONS
from tests.chaos.proxy import Line, Proxy
from tests.fleet import Fleet, Server, Worker, wait_until

QUEUE = "chaos"
WORKERS = 4
PROXIED, SKEWED = 0, 1
"""Which worker reaches Redis through the proxy, and which one's clock is wrong."""

ROLES = ("plain", "plain", "plain", "plain", "plain", "poison", "skewed", "sleeper")
LEASE_S = 2.0
WORKER_SKEW_S = -7200
HEARTBEATS_EVERY_S = 0.5
CUT_S = 1.0


@dataclass
class Slot:
    """One worker's place. Its successors take the place and the name."""

    name: str
    process: Worker
    held: bool = False
    expected_to_end: bool = False
    stale: int = 0
    """Stale finishes of the running process, as its last heartbeat told."""


@dataclass
class Rig:
    """What `faults.Target` asks for, and the running of it all."""

    home: Path
    fsync: str = "always"
    seed: int = 1
    patience_s: float = 120.0
    """How long producers wait for one answer; far beyond every fault, unless answers may be lost."""
    lease_s: float = LEASE_S
    stale: int = 0
    crashed: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """Faults so far, in order."""

    def __post_init__(self) -> None:
        self.server = Server(self.home, "--appendonly", "yes", "--appendfsync", self.fsync)
        self.state = self.home / "state"
        self.state.mkdir()
        self.workspaces = self.state / "workspaces" / QUEUE
        self.slots: list[Slot] = []
        self.producers: list[subprocess.Popen[bytes]] = []
        self.redis_held = False
        self._read_heartbeats = 0.0
        self._sizes: deque[tuple[float, Path, int]] = deque(maxlen=1000)

    # -- beginning and end

    def start(self) -> None:
        """Returns when all workers beat and all producers are at work."""
        self.server.start()
        self.proxy = Proxy(self.server.socket, self.seed)
        settings = {"lease_s": self.lease_s, "drain_s": self.lease_s * 1.5, "command_timeout_s": 30}
        self.fleet = Fleet(self.server.url, self.state, QUEUE, **settings)
        # Its own connection must give up sooner than a frozen server comes back.
        self.redis: Any = redis.Redis.from_url(self.server.url, socket_timeout=0.3)
        self.slots = [Slot(f"w{place}", self._spawn(place)) for place in range(WORKERS)]
        for slot in self.slots:
            wait_until(lambda name=slot.name: self._beats(name), f"{slot.name} to beat", 120)  # type: ignore[misc]
        for place, role in enumerate(ROLES):
            self._start_producer(f"p{place}", role, self.seed * 100 + place)

    def _spawn(self, place: int) -> Worker:
        env = {**self.fleet.env, "TOOLREEF_WORKER": f"w{place}"}
        if place == PROXIED:
            env["REDIS_URL"] = self.proxy.url
        if place == SKEWED:
            env |= {"PYTHONPATH": str(Path(__file__).parent / "skew"), "CHAOS_CLOCK_SHIFT_S": str(WORKER_SKEW_S)}
        command = [sys.executable, "-m", "worker", "worker"]
        return Worker(command, env, self.state / f"w{place}.log")

    def _beats(self, name: str) -> bool:
        return bool(self.redis.hexists(keys.workers(QUEUE), name))

    def _start_producer(self, name: str, role: str, seed: int) -> None:
        for number in range(SESSIONS):
            home = self.workspaces / f"{name}s{number}"
            home.mkdir(parents=True)
            (home / EDITS).write_text(EDITS_END)
        book = str(self.home / f"{name}.book")
        words = [self.server.url, QUEUE, book, name, str(seed), role, str(self.patience_s)]
        command = [sys.executable, "-m", "tests.chaos.producer", *words]
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self.producers.append(process)

    def heal(self) -> None:
        """Undoes whatever may still be wrong. All faults' own undoing has been done."""
        self.proxy.turn(Line.OPEN)
        self.limit_memory(False)

    def finish_producers(self, patience_s: float) -> None:
        """Asks the producers to come to an end, and waits until they have been answered."""
        for process in self.producers:
            process.send_signal(signal.SIGTERM)
        end = time.monotonic() + patience_s
        while any(process.poll() is None for process in self.producers) and time.monotonic() < end:
            self.tend()
            time.sleep(0.02)
        for place, process in enumerate(self.producers):
            if process.poll() != 0:
                self.crashed.append(f"producer p{place}: {process.poll()}")

    def settle(self, patience_s: float) -> None:
        """Waits until nothing of the queue is on its way any more, or for as long as patience lasts."""
        end = time.monotonic() + patience_s
        while self.on_their_way() and time.monotonic() < end:
            self.tend()
            time.sleep(0.05)

    def on_their_way(self) -> list[str]:
        """Keys that exist only while calls are queued, run or wait."""
        patterns = (
            keys.queue(QUEUE) + "*",
            keys.leases(QUEUE),
            keys.running(QUEUE, "*"),
            keys.waiting(QUEUE, "*"),
            keys.parked(QUEUE),
        )
        found = {key.decode() for pattern in patterns for key in self.fleet.redis.scan_iter(_as_glob(pattern))}
        return sorted(found)

    def end(self) -> None:
        """Ends every process of the rig."""
        for process in self.producers:
            if process.poll() is None:
                process.kill()
                process.wait()
        for slot in self.slots:
            slot.process.signal(signal.SIGCONT)
        for slot in self.slots:
            slot.process.end()
        self.proxy.close()
        self.fleet.redis.close()
        self.redis.close()
        self.server.kill()

    # -- what goes on all the time

    def tend(self) -> None:
        """Starts ended workers again, kills those that run poison, and reads what the living say of themselves."""
        for place, slot in enumerate(self.slots):
            status = slot.process.process.poll()
            if status is None:
                continue
            if not slot.expected_to_end:
                self.crashed.append(f"{slot.name}: {status}")
            self.stale, slot.stale = self.stale + slot.stale, 0
            slot.expected_to_end = False
            slot.process = self._spawn(place)
        if self.redis_held:
            return
        self._note_size()
        with contextlib.suppress(redis.RedisError):
            self._kill_the_poisoned()
            if time.monotonic() - self._read_heartbeats > HEARTBEATS_EVERY_S:
                self._read_heartbeats = time.monotonic()
                self._note_stale()

    def _kill_the_poisoned(self) -> None:
        for marker in self.workspaces.glob("*/poison-*"):
            call, session = marker.name.removeprefix("poison-"), marker.parent.name
            claim = self.redis.get(keys.in_progress(QUEUE, session, call))
            marker.unlink()
            if claim is None:
                continue
            name = claim.decode().split(" ")[1]
            slot = next(slot for slot in self.slots if slot.name == name)
            slot.expected_to_end = True
            slot.process.signal(signal.SIGKILL)
            self.done.append("poison")

    def _note_stale(self) -> None:
        for name, beat in self.redis.hgetall(keys.workers(QUEUE)).items():
            stale = msgspec.json.decode(beat.split(b" ", 1)[1])["metrics"]["stale"]
            for slot in self.slots:
                if slot.name == name.decode():
                    # A heartbeat of the process before must not count for its successor.
                    slot.stale = max(slot.stale, stale) if slot.process.process.poll() is None else slot.stale

    def read_replies(self, calls: dict[str, Call]) -> list[str]:
        """Fills in `replies` from the streams. Returns entries that belong to no call we know."""
        strange = []
        for key in self.fleet.redis.scan_iter(_as_glob(keys.replies(QUEUE, "*"))):
            for entry_id, fields in self.fleet.redis.xrange(key):
                reply = msgspec.json.decode(fields[b"reply"])
                if reply["kind"] == "progress":
                    continue
                if reply["call"] in calls:
                    calls[reply["call"]].replies.append((int(entry_id.split(b"-")[0]), reply))
                else:
                    strange.append(reply["call"])
        return strange

    def _note_size(self) -> None:
        """How long the append-only file was, over the last seconds."""
        files = sorted((self.home / "appendonlydir").glob("*.incr.aof"), key=lambda file: file.stat().st_mtime)
        self._sizes.append((time.monotonic(), files[-1], files[-1].stat().st_size))

    # -- what faults may do

    def free_slot(self, choose: random.Random) -> int | None:
        """A worker that is alive and not held."""
        free = [place for place, slot in enumerate(self.slots) if not slot.held and not slot.expected_to_end]
        if not free:
            return None
        place = choose.choice(free)
        self.slots[place].held = True
        return place

    def let_go(self, slot: int) -> None:
        """The worker may be harmed again."""
        self.slots[slot].held = False

    def signal_worker(self, slot: int, number: signal.Signals) -> None:
        """Sends a signal; a worker that ends of it is started again."""
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.slots[slot].expected_to_end = True
        self.slots[slot].process.signal(number)

    def take_redis(self) -> bool:
        """Whether Redis was free."""
        if self.redis_held:
            return False
        self.redis_held = True
        return True

    def give_redis(self) -> None:
        """Redis may be harmed again."""
        self.redis_held = False

    def stop_redis(self, number: signal.Signals) -> None:
        """Ends the server and waits for its end."""
        self.server.kill(number)

    def start_redis(self) -> None:
        """Starts it on the data it left."""
        self.server.start()

    def cut_tail(self) -> None:
        """Cuts the append-only file of the ended server back to what it was CUT_S ago."""
        if not self._sizes:
            return
        last_at, last, _ = self._sizes[-1]
        known = [(at, size) for at, file, size in self._sizes if file == last]
        os.truncate(last, max((size for at, size in known if at <= last_at - CUT_S), default=known[0][1]))
        self._sizes.clear()

    def signal_redis(self, number: signal.Signals) -> None:
        """Sends a signal to the running server."""
        assert self.server.process is not None
        self.server.process.send_signal(number)

    def limit_memory(self, full: bool) -> None:
        """Full, or no limit."""
        self.fleet.redis.config_set("maxmemory", self.fleet.redis.info("memory")["used_memory"] - 1 if full else 0)


def _as_glob(pattern: str) -> str:
    return pattern.replace("[", "\\[")


@contextlib.contextmanager
def rig(home: Path, fsync: str, seed: int, patience_s: float) -> Iterator[Rig]:
    """A running rig, ended with the block."""
    made = Rig(home, fsync=fsync, seed=seed, patience_s=patience_s)
    try:
        made.start()
        yield made
    finally:
        made.end()
