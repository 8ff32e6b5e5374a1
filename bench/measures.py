"""One measurement each: what is started, what is asked of it, and what comes out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.server import Server
from bench.systems import Client, MeasureFailed, System, Worker

Figures = dict[str, Any]
JOBS = 5000
CLIENTS = 50
SPACED, SPACED_IN_A_TURN = 400, 20


@dataclass(kw_only=True)
class Bench:
    """The surroundings of all measurements."""

    server: Server
    directory: Path
    path: Path
    """The file of 1 KiB that every job reads."""

    @property
    def work(self) -> Figures:
        """What each request to a load process carries."""
        return {"tool": "read", "path": str(self.path)}

    @contextmanager
    def pair(
        self,
        system: System,
        concurrency: int,
        *,
        workers: int = 1,
        sync_always: bool = False,
        tool: str = "read",
        beside: bool = False,
        clients: int = CLIENTS,
    ) -> Iterator[tuple[list[Worker], Client]]:
        """A warm process for `clients`, and warm workers, on an emptied server or `beside` others on it."""
        if not beside:
            self.server.clear(sync_always=sync_always)
        client = Client(system, self.server.url, self.directory)
        running: list[Worker] = []
        try:
            running += [Worker(system, concurrency, self.server.url, self.directory, tool=tool) for _ in range(workers)]
            self.warm(client, tool, clients)
            yield running, client
        finally:
            for worker in running:
                worker.stop()
            client.stop()

    def warm(self, client: Client, tool: str = "read", clients: int = CLIENTS) -> None:
        """Some calls, each answer compared: the worker is up, and does what it should."""
        text = self.path.read_text() if tool == "read" else ""
        client.ask("warm", jobs=10, clients=clients, tool=tool, path=str(self.path), text=text)


def percentiles(took: list[float]) -> Figures:
    """p50, p95, p99 in ms."""
    ordered = sorted(took)
    return {f"p{rank}_ms": 1000 * ordered[min(len(ordered) - 1, len(ordered) * rank // 100)] for rank in (50, 95, 99)}


def drain(bench: Bench, workers: list[Worker], client: Client, tool: str, jobs: int, limit_s: float) -> Figures:
    """Fill the queue before a warm worker that is held, let go, and wait until nothing is left.

    A system that needs longer than `limit_s` is measured over what it did by then.
    """
    work = {**bench.work, "tool": tool}
    for worker in workers:
        worker.pause()
    filled = client.ask("submit", jobs=jobs, **work)
    cpu_s, server_cpu_s = sum(worker.cpu_s() for worker in workers), bench.server.cpu_s()
    begin = client.ask("drained", seconds=0)["at"]
    for worker in workers:
        worker.resume()
    end = client.ask("drained", seconds=limit_s)
    cpu_s = sum(worker.cpu_s() for worker in workers) - cpu_s
    server_cpu_s = bench.server.cpu_s() - server_cpu_s
    done = filled["remaining"] - end["remaining"]
    if done < jobs // 100:
        raise MeasureFailed(f"only {done} of {jobs} jobs done in {limit_s} s")
    return {
        "jobs_per_s": done / (end["at"] - begin),
        "enqueue_per_s": jobs / filled["seconds"],
        "worker_cpu_s_per_1000": 1000 * cpu_s / done,
        "redis_cpu_s_per_1000": 1000 * server_cpu_s / done,
        "rss_mb": max(worker.rss_mb() for worker in workers),
        "unfinished": end["remaining"],
    }


def spaced(bench: Bench, client: Client, seconds: float) -> Figures:
    """Round trips at low load."""
    return spaced_in_turns(bench, [client], seconds)[0]


def spaced_in_turns(bench: Bench, clients: Sequence[Client], seconds: float) -> list[Figures]:
    """Round trips at low load of several systems, a few calls of one after a few of the other.

    A shared machine changes its speed within a second: what is compared must be measured in the same moments.
    """
    took: list[list[float]] = [[] for _ in clients]
    end = time.monotonic() + seconds * len(clients)
    turn = 0
    while time.monotonic() < end and len(took[-1]) < SPACED:
        for number in range(len(clients)):
            each = (turn + number) % len(clients)
            asked = {"jobs": SPACED_IN_A_TURN, "seconds": seconds, "seed": turn}
            took[each] += clients[each].ask("spaced", **asked, **bench.work)["took"]
        turn += 1
    return [{**percentiles(times), "samples": len(times)} for times in took]


def loaded(bench: Bench, client: Client, seconds: float) -> Figures:
    """Round trips with 50 closed-loop clients."""
    client.ask("loaded", clients=CLIENTS, seconds=0.3, **bench.work)
    answer = client.ask("loaded", clients=CLIENTS, seconds=seconds, **bench.work)
    return {**percentiles(answer["took"]), "calls_per_s": answer["calls_per_s"]}


def middle(rounds: list[Figures]) -> Figures:
    """The median of each figure over the rounds, with how far apart they were."""
    if not rounds:
        return {}
    joined: Figures = {"rounds": len(rounds)}
    for name in rounds[0]:
        if not isinstance(rounds[0][name], (int, float)) or name == "round":
            continue
        values = [figures[name] for figures in rounds if name in figures]
        joined[name] = median(values)
        joined[f"{name}_range"] = [min(values), max(values)]
    return joined
