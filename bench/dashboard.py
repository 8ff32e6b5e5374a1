"""`python -m bench.dashboard`: how long each page's data takes with 1,000,000 queued calls and 10,000 sessions."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import redis

from bench.server import Server
from contracts import keys
from contracts.codec import encode_call

QUEUE = "bench"
BATCH = 10_000
AUDIT = 100_000
LIMIT_MS = 200.0


def fill(client: Any, calls: int, sessions: int) -> None:
    """Queued calls with their payloads, session records, a full audit stream, 1,000 claimed calls."""
    now_ms = int(time.time() * 1000)
    payload = encode_call("run_command", {"command": "make test"}, enqueued_ms=now_ms)
    for start in range(0, calls, BATCH):
        with client.pipeline(transaction=False) as pipe:
            ids = [(n, f"s{n % sessions}", f"c{n}") for n in range(start, min(calls, start + BATCH))]
            pipe.zadd(keys.queue(QUEUE), {keys.job_id(QUEUE, s, c): now_ms + n / 1000 for n, s, c in ids})
            for n, s, c in ids:
                if n < calls // 10:
                    pipe.set(keys.job(QUEUE, s, c), payload, px=3_600_000)
            pipe.execute()
    with client.pipeline(transaction=False) as pipe:
        for n in range(sessions):
            record = {"workspace": f"w{n}", "mode": "normal", "taint": "INTERNAL", "taint:INTERNAL": f"{now_ms} c{n}"}
            pipe.hset(keys.session(QUEUE, f"s{n}"), mapping=record)
        for n in range(1000):
            s, c = f"s{n}", f"run{n}"
            pipe.zadd(keys.leases(QUEUE), {keys.job_id(QUEUE, s, c): now_ms + 15_000})
            pipe.set(keys.job(QUEUE, s, c), payload, px=3_600_000)
            pipe.set(keys.in_progress(QUEUE, s, c), f"{n}/ticket/{now_ms - n} worker-{n % 20}", px=3_600_000)
            pipe.hset(keys.running(QUEUE, s), mapping={c: "e1", "#e": 1})
        beat = {"worker": "w", "queues": [QUEUE], "slots": 64, "running": 50, "draining": False, "metrics": {}}
        for n in range(100):
            pipe.hset(keys.workers(QUEUE), f"worker-{n}", f"{now_ms} {json.dumps(beat)}")
        pipe.execute()
    for start in range(0, AUDIT, BATCH):
        with client.pipeline(transaction=False) as pipe:
            for n in range(start, start + BATCH):
                entry = {
                    "worker": f"worker-{n % 20}",
                    "seq": n,
                    "hash": "0" * 64,
                    "id": keys.job_id(QUEUE, f"s{n % sessions}", f"d{n}"),
                    "tool": "plan.propose" if n % 1000 == 0 else "run_command",
                    "kind": ("completed", "denied", "failed")[n % 3],
                    "code": ("", "forbidden", "timeout")[n % 3],
                    "policy": "",
                    "rule": f"rule-{n % 7}",
                    "level": "PUBLIC",
                    "taint": "INTERNAL",
                    "attempt": 1,
                    "queued_ms": n % 97,
                    "run_ms": n % 1013,
                    "about": "make test && make lint && git diff --stat",
                }
                # The last half hour, evenly: every bucket of the charts is full.
                at_ms = now_ms - (AUDIT - n) * 18
                pipe.xadd(keys.audit(QUEUE), {"entry": json.dumps(entry)}, id=f"{at_ms}-{n}")
            pipe.execute()


def pages(sessions: int) -> dict[str, str]:
    """Name to path of what each page asks for."""
    return {
        "overview": f"/api/queues?queue={QUEUE}",
        "overview, 24 h": f"/api/queues?queue={QUEUE}&window=24h",
        "workers": "/api/workers",
        "running": "/api/running",
        "calls": "/api/calls",
        "queued calls": "/api/calls?status=queued",
        "search, common": "/api/calls?status=failed",
        "search, nothing found": "/api/calls?text=no-such-thing",
        "a call": f"/api/calls/{QUEUE}/s1/run1",
        "sessions": "/api/sessions",
        "a session": f"/api/sessions/{QUEUE}/s{sessions - 1}",
        "plans": "/api/plans",
        "failures": "/api/failures",
        "page and scripts": "/",
    }


def ask(url: str) -> float:
    """Milliseconds to the last byte of an answer that must be good."""
    began = time.perf_counter()
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        with error:
            raise RuntimeError(f"{url}: {error.read().decode()}") from None
    return (time.perf_counter() - began) * 1000


def measure(base: str, sessions: int, rounds: int) -> dict[str, list[float]]:
    """Times of each page: the first (nothing at hand yet), then others, each after what is at hand has aged."""
    found: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for name, path in pages(sessions).items():
            found.setdefault(name, []).append(ask(base + path))
        if turn < rounds:
            time.sleep(2.1)
    return found


def main() -> int:
    """Prints a table; 1 if a page took longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Server(Path(folder))) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        fill(client, options.calls, options.sessions)
        used = client.info("memory")["used_memory_human"]
        print(f"{client.zcard(keys.queue(QUEUE)):,} queued, {options.sessions:,} sessions, Redis holds {used}")
        client.config_resetstat()
        command = [sys.executable, "-m", "worker", "dashboard", "--port", "0", "--queue", QUEUE]
        env = {**os.environ, "REDIS_URL": server.url, "TOOLREEF_STATE": folder}
        dashboard = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, start_new_session=True)
        assert dashboard.stdout is not None
        try:
            base = dashboard.stdout.readline().decode().split()[-1].rstrip("/")
            found = measure(base, options.sessions, options.rounds)
            resident = Path(f"/proc/{dashboard.pid}/statm").read_text().split()[1]
        finally:
            dashboard.terminate()
            dashboard.wait()
            dashboard.stdout.close()
        slowest = max(client.slowlog_get(128), key=lambda entry: entry["duration"], default=None)
    print(f"{'page':24}{'first':>10}{'median':>10}{'worst':>10}   ms")
    for name, times in found.items():
        print(f"{name:24}{times[0]:10.1f}{statistics.median(times[1:]):10.1f}{max(times[1:]):10.1f}")
    print(f"dashboard process: {int(resident) * 4096 / 2**20:.0f} MiB resident")
    if slowest:
        print(f"slowest command in Redis: {slowest['duration'] / 1000:.1f} ms, {slowest['command'][:60]!r}")
    return int(max(max(times) for times in found.values()) > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
