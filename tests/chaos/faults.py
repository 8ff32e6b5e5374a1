"""One function a fault. Each does its harm and returns when and how it is to be undone, or None where it can't now.

Chosen and timed by a seeded generator; what runs meanwhile is not, so a seed gives the same faults, not the same run.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import Protocol

from tests.chaos.proxy import Line, Proxy

Undo = tuple[float, Callable[[], None]]
"""Seconds from now, and what to do then."""


class Target(Protocol):
    """What faults may do to a rig."""

    lease_s: float
    proxy: Proxy

    def free_slot(self, random: random.Random) -> int | None:
        """A worker that no other fault holds at present; it is held until `let_go`."""

    def let_go(self, slot: int) -> None:
        """The worker may be harmed again."""

    def signal_worker(self, slot: int, number: signal.Signals) -> None:
        """Sends a signal; a worker that ends of it is started again."""

    def take_redis(self) -> bool:
        """Whether no other fault holds Redis at present; it is held until `give_redis`."""

    def give_redis(self) -> None:
        """Redis may be harmed again."""

    def stop_redis(self, number: signal.Signals) -> None:
        """Ends the server and waits for its end."""

    def start_redis(self) -> None:
        """Starts it on the data it left."""

    def cut_tail(self) -> None:
        """Takes from the append-only file of the ended server what was written in its last second."""

    def signal_redis(self, number: signal.Signals) -> None:
        """Sends a signal to the running server."""

    def limit_memory(self, full: bool) -> None:
        """Lets Redis have no more memory than it has now, or as much as it likes."""


Fault = Callable[[Target, random.Random], Undo | None]


def kill_worker(rig: Target, choose: random.Random) -> Undo | None:
    """SIGKILL: nothing of the worker's own runs any more."""
    return _hit(rig, choose, signal.SIGKILL)


def terminate_worker(rig: Target, choose: random.Random) -> Undo | None:
    """SIGTERM: it drains, and another takes its place and its name."""
    return _hit(rig, choose, signal.SIGTERM)


def _hit(rig: Target, choose: random.Random, number: signal.Signals) -> Undo | None:
    slot = rig.free_slot(choose)
    if slot is None:
        return None
    rig.signal_worker(slot, number)
    return 0.0, lambda: rig.let_go(slot)


def freeze_worker(rig: Target, choose: random.Random) -> Undo | None:
    """SIGSTOP for longer than the lease: it comes back and believes that its calls are still its own."""
    slot = rig.free_slot(choose)
    if slot is None:
        return None
    rig.signal_worker(slot, signal.SIGSTOP)

    def thaw() -> None:
        rig.signal_worker(slot, signal.SIGCONT)
        rig.let_go(slot)

    return rig.lease_s * choose.uniform(1.2, 2.0), thaw


def kill_redis(rig: Target, choose: random.Random) -> Undo | None:
    """kill -9 of the server, and a start from its append-only file."""
    return _restart(rig, choose, signal.SIGKILL)


def lose_power(rig: Target, choose: random.Random) -> Undo | None:
    """What `appendfsync everysec` may lose with the machine's power: the last second before it."""
    undo = _restart(rig, choose, signal.SIGKILL)
    if undo is not None:
        rig.cut_tail()
    return undo


def terminate_redis(rig: Target, choose: random.Random) -> Undo | None:
    """An orderly restart of the server."""
    return _restart(rig, choose, signal.SIGTERM)


def _restart(rig: Target, choose: random.Random, number: signal.Signals) -> Undo | None:
    if not rig.take_redis():
        return None
    rig.stop_redis(number)

    def restart() -> None:
        rig.start_redis()
        rig.give_redis()

    return choose.choice([0.05, 0.5, rig.lease_s * 1.5]), restart


def freeze_redis(rig: Target, choose: random.Random) -> Undo | None:
    """The server accepts connections and answers nothing, for longer than a lease."""
    if not rig.take_redis():
        return None
    rig.signal_redis(signal.SIGSTOP)

    def thaw() -> None:
        rig.signal_redis(signal.SIGCONT)
        rig.give_redis()

    return rig.lease_s * choose.uniform(0.5, 2.0), thaw


def fill_memory(rig: Target, choose: random.Random) -> Undo | None:
    """`maxmemory` is reached: Redis refuses every write that needs memory."""
    if not rig.take_redis():
        return None
    rig.limit_memory(True)

    def relieve() -> None:
        rig.limit_memory(False)
        rig.give_redis()

    return choose.uniform(0.5, 2.5), relieve


def cut_line(rig: Target, choose: random.Random) -> Undo | None:
    """The line of one worker is reset, at a moment that falls between a command and its answer."""
    return _turn(rig, Line.CUT, choose.choice([0.0, 0.3, rig.lease_s * 1.5]))


def slow_line(rig: Target, choose: random.Random) -> Undo | None:
    """Everything on one worker's line comes late; sometimes later than its time-out."""
    return _turn(rig, Line.OPEN, rig.lease_s * 1.5, delay_s=choose.choice([0.02, 0.2, 0.7]))


def half_line(rig: Target, choose: random.Random) -> Undo | None:
    """One worker is heard and hears nothing: its claims and endings count, and it doesn't know."""
    return _turn(rig, Line.HALF, choose.uniform(0.2, rig.lease_s * 1.5))


def dead_line(rig: Target, choose: random.Random) -> Undo | None:
    """One worker's connections stand and carry nothing."""
    return _turn(rig, Line.DEAD, choose.uniform(0.2, rig.lease_s * 1.5))


def held_line(rig: Target, choose: random.Random) -> Undo | None:
    """What one worker sends is kept and delivered later, after commands that it sent afterwards."""
    return _turn(rig, Line.HELD, choose.uniform(0.5, rig.lease_s * 2))


def _turn(rig: Target, line: Line, seconds: float, *, delay_s: float = 0.0) -> Undo:
    rig.proxy.turn(line, delay_s=delay_s)
    return seconds, lambda: rig.proxy.turn(Line.OPEN)


FAULTS: dict[str, tuple[int, Fault]] = {
    "kill-worker": (4, kill_worker),
    "term-worker": (3, terminate_worker),
    "freeze-worker": (3, freeze_worker),
    "kill-redis": (2, kill_redis),
    "lose-power": (0, lose_power),
    "term-redis": (1, terminate_redis),
    "freeze-redis": (1, freeze_redis),
    "fill-memory": (1, fill_memory),
    "cut-line": (3, cut_line),
    "slow-line": (1, slow_line),
    "half-line": (2, half_line),
    "dead-line": (1, dead_line),
    "held-line": (2, held_line),
}
"""Every fault by name, with its weight in a mixed run. Nothing promises to survive `lose-power`."""
