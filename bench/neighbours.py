"""What a neighbour feels while a command runs into its limit: the latency of another session's calls, against alone.

python -m bench.neighbours [--seconds 4] [--rounds 3]

One worker, one attacker (the next command starts when the last one was ended), one neighbour who asks every 20 ms: a
read of 1 KiB and `true`. Round by round without and with the attacker, and the median over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from contracts.client import Client
from contracts.replies import Completed
from tests.fleet import Fleet, serve

_EACH_S = 0.02
_LIMITS: dict[str, object] = {
    "command_processes": 256,
    "command_memory_bytes": 256 * 1024**2,
    "command_cpu_s": 1,
    "workspace_bytes": 256 * 1024**2,
    "command_file_bytes": 1024**3,
}
_ATTACKS = {
    "processes": "b() { b | b & }; b; sleep 5",
    "memory": "exec python3 -c 'held = []\nwhile True: held.append(bytearray(1 << 20))'",
    "cpu": "while :; do :; done",
    "workspace": "exec dd if=/dev/zero of=big bs=1M status=none",
    "output": "exec yes",
    "wall": "exec sleep 60",
}


class Neighbour:
    """Asks at a steady pace, and keeps how long each answer took, in milliseconds."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ask(self, seconds: float) -> dict[str, list[float]]:
        took: dict[str, list[float]] = {"read": [], "true": []}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for kind, tool, args in (
                ("read", "read_file", {"path": "small"}),
                ("true", "run_command", {"command": "true"}),
            ):
                started = time.perf_counter()
                reply = await self._client.call(tool, args, session="neighbour", timeout_s=60)
                took[kind].append((time.perf_counter() - started) * 1000)
                assert isinstance(reply, Completed), reply
                await asyncio.sleep(_EACH_S)
        return took


async def attack(client: Client, name: str, endings: Counter[str]) -> None:
    """One command after the other, until it is cancelled."""
    while True:
        args: dict[str, Any] = {"command": f"rm -f big; bash {name}.sh", "timeout_s": 3}
        reply: Any = await client.call("run_command", args, session="attacker", timeout_s=120)
        output = reply.output if isinstance(reply, Completed) else reply.output or {}
        endings.update(output.get("limits_hit") or [f"none ({type(reply).__name__})"])


async def measure(url: str, queue: str, seconds: float, rounds: int) -> None:
    """Prints a line an attack."""
    async with Client.connect(url, queue=queue) as client, Client.connect(url, queue=queue) as other:
        await client.call("write_file", {"path": "small", "content": "x" * 1024}, session="neighbour", timeout_s=30)
        for name, script in _ATTACKS.items():
            args = {"path": f"{name}.sh", "content": script}
            await other.call("write_file", args, session="attacker", timeout_s=30)
        neighbour = Neighbour(client)
        await neighbour.ask(1)
        for name in _ATTACKS:
            alone: list[dict[str, list[float]]] = []
            beside: list[dict[str, list[float]]] = []
            endings: Counter[str] = Counter()
            for _ in range(rounds):
                alone.append(await neighbour.ask(seconds))
                attacking = asyncio.create_task(attack(other, name, endings))
                await asyncio.sleep(0.3)
                beside.append(await neighbour.ask(seconds))
                attacking.cancel()
                await asyncio.wait({attacking})
                await asyncio.sleep(4)
            print(f"{name:10} {_figures(alone, beside)}  ended by {dict(endings)}", flush=True)


def _figures(alone: list[dict[str, list[float]]], beside: list[dict[str, list[float]]]) -> str:
    parts = []
    for kind in ("read", "true"):
        for label, percent in (("p50", 50), ("p95", 95)):
            without, with_it = (
                statistics.median(statistics.quantiles(each[kind], n=100)[percent - 1] for each in rounds)
                for rounds in (alone, beside)
            )
            parts.append(f"{kind} {label} {without:5.2f} -> {with_it:6.2f} ms ({with_it / without:4.2f}x)")
    return "  ".join(parts)


def main() -> None:
    """On a Redis and a worker of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        state, data = Path(home, "state"), Path(home, "data")
        os.mkdir(state)
        os.mkdir(data)
        with serve(data) as server:
            fleet = Fleet(server.url, state, "neighbours", **_LIMITS)
            try:
                fleet.start_worker()
                asyncio.run(measure(server.url, fleet.queue, options.seconds, options.rounds))
            finally:
                fleet.end()


if __name__ == "__main__":
    main()
