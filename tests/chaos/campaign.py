"""One run: load, faults from a seed, healing, and the verdict."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.chaos.faults import FAULTS
from tests.chaos.ledger import Verdict, judge, read_books
from tests.chaos.rig import QUEUE, Rig, rig

MEAN_GAP_S = 0.8
"""Between two faults. One that can't be done at the time, because another holds its victim, is left out."""

GAP_BETWEEN_LOSSES_S = (3.0, 6.0)
WARM_UP_S = 1.0
PATIENCE_S = 120.0
PATIENCE_WITH_LOSSES_S = 6.0


def run(home: Path, *, seed: int, duration_s: float, fsync: str = "always", only: str | None = None) -> Verdict:
    """Harms a rig of its own for so long, and judges it."""
    patience_s = PATIENCE_WITH_LOSSES_S if only == "lose-power" else PATIENCE_S
    with rig(home, fsync, seed, patience_s) as made:
        _harm(made, random.Random(seed), duration_s, only)
        made.heal()
        made.finish_producers(patience_s * 2)
        made.settle(patience_s)
        verdict = _judge(made)
    print(f"faults: {', '.join(f'{name} {count}' for name, count in Counter(made.done).most_common())}")
    return verdict


def _harm(made: Rig, choose: random.Random, duration_s: float, only: str | None) -> None:
    """One fault after another; their undoing falls due meanwhile, so that they overlap."""
    names = [only] if only else list(FAULTS)
    weights = [1 if only else FAULTS[name][0] for name in names]
    undone: list[tuple[float, int, Callable[[], None]]] = []
    order = itertools.count()
    began = time.monotonic()
    next_fault = WARM_UP_S + _gap_s(choose, only)
    while (now := time.monotonic() - began) < duration_s or undone:
        made.tend()
        while undone and undone[0][0] <= now:
            heapq.heappop(undone)[2]()
        if next_fault <= now < duration_s:
            name = choose.choices(names, weights)[0]
            undo = FAULTS[name][1](made, choose)
            if undo is not None:
                made.done.append(name)
                heapq.heappush(undone, (now + undo[0], next(order), undo[1]))
            next_fault = now + _gap_s(choose, only)
        time.sleep(0.01)


def _gap_s(choose: random.Random, only: str | None) -> float:
    # Between two losses there must be something to lose.
    return choose.uniform(*GAP_BETWEEN_LOSSES_S) if only == "lose-power" else choose.expovariate(1 / MEAN_GAP_S)


def _judge(made: Rig) -> Verdict:
    calls = read_books(sorted(made.home.glob("*.book")))
    strange = made.read_replies(calls)
    verdict = judge(calls, made.workspaces)
    verdict.stale = made.stale + sum(slot.stale for slot in made.slots)
    verdict.crashed = made.crashed
    never = {call.call for call in calls.values() if not call.replies}
    verdict.leftover = [*made.on_their_way(), *strange, *_of_ended_calls(made, never)]
    return verdict


def _of_ended_calls(made: Rig, never_replied: set[str]) -> list[str]:
    """Keys that live only as long as their call, and keys that nothing will ever end.

    The payload of a call that was not accepted in full may stay for its life.
    """
    found = []
    stays = (":fence", ":audit", ":dead", ":bell")
    for key in made.fleet.redis.scan_iter("*"):
        name: str = key.decode()
        if name.startswith(("arq:job:", "arq:in-progress:")):
            is_spare = name.startswith("arq:job:") and name.rsplit(":", 1)[1] in never_replied
            found += [] if is_spare else [name]
        if made.fleet.redis.ttl(key) == -1 and not name.endswith(stays):
            kept = name.startswith((f"reef:{{{QUEUE}}}:session:", f"reef:{{{QUEUE}}}:workspace:"))
            found += [] if kept else [f"{name} (for ever)"]
    return found
