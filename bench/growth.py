"""Of toolreef alone: does a call cost more when the queue is long, or when many sessions are known?

Cost is CPU time of worker and Redis a call, at a depth that stays the same while it is measured: wall time would say
more about the machine's other work, and a queue that runs dry makes batches small.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.measures import Bench, Figures
from bench.peers import FILE
from bench.peers.toolreef import QUEUE, SESSIONS, WORKSPACE
from bench.systems import OURS
from contracts import keys
from contracts.codec import encode_call

DEPTHS = (100, 10_000, 1_000_000)
KNOWN = (SESSIONS, 100_000)
_CALLS = 3000
_CONCURRENCY = 10

_FILL = """
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local id = ARGV[3] .. ':s' .. (i % tonumber(ARGV[4])) .. ':fill' .. i
  redis.call('SET', 'arq:job:' .. id, ARGV[5], 'PX', 3600000)
  redis.call('ZADD', KEYS[1], ARGV[6], id)
end
"""
_KNOW = """
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('HSET', KEYS[1] .. i, 'workspace', ARGV[3]) end
"""


def _in_parts(run: Callable[..., Any], total: int, *rest: Any) -> None:
    for first in range(0, total, 10_000):
        run(keys=rest[:1], args=[first, min(first + 10_000, total) - 1, *rest[1:]])


def _cost(bench: Bench, *, depth: int, known: int, sessions: int) -> Figures:
    connection = bench.server.connection
    now_ms = int(time.time() * 1000) - 1000
    payload = encode_call("read_file", {"path": FILE}, enqueued_ms=now_ms)
    with bench.pair(OURS, _CONCURRENCY) as (workers, client):
        workers[0].pause()
        _in_parts(connection.register_script(_KNOW), known, keys.session(QUEUE, "s"), WORKSPACE)
        fill = connection.register_script(_FILL)
        _in_parts(fill, depth, keys.queue(QUEUE), f"{{{QUEUE}}}", sessions, payload, now_ms)
        connection.lpush(keys.bell(QUEUE), 1)
        cpu_s, redis_cpu_s = workers[0].cpu_s(), bench.server.cpu_s()
        workers[0].resume()
        steady = client.ask("steady", jobs=_CALLS, seconds=30, sessions=sessions, **bench.work)
        cpu_s, redis_cpu_s = workers[0].cpu_s() - cpu_s, bench.server.cpu_s() - redis_cpu_s
        calls = steady["jobs"]
        return {
            "worker_us": 1e6 * cpu_s / calls,
            "redis_us": 1e6 * redis_cpu_s / calls,
            "cost_us": 1e6 * (cpu_s + redis_cpu_s) / calls,
            "calls_per_s": calls / steady["seconds"],
        }


def _least(bench: Bench, sizes: dict[str, dict[str, int]], passes: int = 2) -> dict[str, Figures]:
    """The least cost of each size over interleaved passes: whatever else the machine does only adds."""
    found: dict[str, list[Figures]] = {name: [] for name in sizes}
    for _ in range(passes):
        for name, size in sizes.items():
            found[name].append(_cost(bench, **size))
    return {name: min(costs, key=lambda cost: cost["cost_us"]) for name, costs in found.items()}


def depth_costs(bench: Bench) -> dict[str, Figures]:
    """The cost of a call by queue depth."""
    return _least(bench, {str(n): {"depth": n, "known": SESSIONS, "sessions": SESSIONS} for n in DEPTHS})


def session_costs(bench: Bench) -> dict[str, Figures]:
    """The cost of a call by how many sessions are known, 50 of them active; and of a session's first call."""
    sizes = {str(known): {"depth": 1000, "known": known, "sessions": SESSIONS} for known in KNOWN}
    sizes["100,000, each call the first of its session"] = {"depth": 1000, "known": KNOWN[-1], "sessions": _CALLS * 2}
    return _least(bench, sizes)
