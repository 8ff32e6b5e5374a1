"""What the systems send to Redis: commands a job while draining and alone, and commands a second when idle."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.measures import Bench, Figures
from bench.proxy import CountingProxy
from bench.systems import Client, System, Worker


def commands(bench: Bench, system: System, concurrency: int, jobs: int, seconds: float) -> Figures:
    """Commands on the wire a call, by side: while draining, and for one call at a time."""
    bench.server.clear()
    theirs, ours = CountingProxy(bench.server.port), CountingProxy(bench.server.port)
    client = Client(system, ours.url, bench.directory)
    worker = Worker(system, concurrency, theirs.url, bench.directory)
    try:
        bench.warm(client)
        worker.pause()
        ours.reset()
        client.ask("submit", jobs=jobs, **bench.work)
        submitted = dict(ours.names)
        theirs.reset()
        inner = bench.server.connection.info("stats")["total_commands_processed"]
        worker.resume()
        left = client.ask("drained", seconds=15)["remaining"]
        inner = bench.server.connection.info("stats")["total_commands_processed"] - inner
        done = jobs - left
        draining, writes = dict(theirs.names), theirs.writes
        ours.reset()
        theirs.reset()
        calls = len(client.ask("spaced", jobs=200, seconds=seconds, seed=0, **bench.work)["took"])
        return {
            "submit": sum(submitted.values()) / jobs,
            "drain_worker": sum(draining.values()) / max(done, 1),
            "drain_worker_writes": writes / max(done, 1),
            "drain_total": sum(submitted.values()) / jobs + sum(draining.values()) / max(done, 1),
            "spaced_client": sum(ours.names.values()) / calls,
            "spaced_worker": sum(theirs.names.values()) / calls,
            "drain_by_name": {name: round(count / max(done, 1), 3) for name, count in draining.items()},
            "drain_server_counted": inner / max(done, 1),
        }
    finally:
        for process in (worker, client):
            process.stop()
        theirs.close()
        ours.close()


def idle(bench: Bench, systems: Sequence[System], concurrency: int, seconds: float) -> dict[str, Figures]:
    """Commands on the wire of workers that have nothing to do, all systems at the same time."""
    bench.server.clear()
    running: list[tuple[System, CountingProxy, Client, Worker]] = []
    try:
        for system in systems:
            proxy = CountingProxy(bench.server.port)
            client = Client(system, bench.server.url, bench.directory)
            running.append((system, proxy, client, Worker(system, concurrency, proxy.url, bench.directory)))
        for _, _, client, _ in running:
            bench.warm(client)
        time.sleep(1)
        before = {system.name: worker.cpu_s() for system, _, _, worker in running}
        for _, proxy, _, _ in running:
            proxy.reset()
        time.sleep(seconds)
        return {
            system.name: {
                "commands_per_s": sum(proxy.names.values()) / seconds,
                "cpu_percent": 100 * (worker.cpu_s() - before[system.name]) / seconds,
                "by_name": dict(proxy.names),
            }
            for system, proxy, _, worker in running
        }
    finally:
        for _, proxy, client, worker in running:
            worker.stop()
            client.stop()
            proxy.close()
