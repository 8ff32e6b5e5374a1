"""The process at either end of a measurement: `serve SYSTEM CONCURRENCY` is a worker, `client SYSTEM` the load.

A client takes one JSON object a line on standard input and answers with one a line on standard output. Times are
seconds of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import random
import sys
import time
from typing import Any

from bench.peers import ClientSide


async def _warm(side: ClientSide, ask: dict[str, Any]) -> dict[str, Any]:
    for _ in range(4):
        # The first call waits for the worker to start. SAQ's worker may sweep it away as stuck while it does.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(5):
                await side.call(0, ask["tool"], ask["path"])
            break
    for number in range(ask["jobs"]):
        text = await side.call(number % ask["clients"], ask["tool"], ask["path"])
        if text != ask["text"]:
            raise ValueError(f"the answer is not the file: {text[:80]!r}")
    return {}


async def _spaced(side: ClientSide, ask: dict[str, Any]) -> dict[str, Any]:
    """One closed-loop client that pauses 2 to 8 ms, so that every request meets an idle worker."""
    pauses = random.Random(ask["seed"])
    took: list[float] = []
    end = time.monotonic() + ask["seconds"]
    while time.monotonic() < end and len(took) < ask["jobs"]:
        begin = time.monotonic()
        await side.call(0, ask["tool"], ask["path"])
        took.append(time.monotonic() - begin)
        await asyncio.sleep(pauses.uniform(0.002, 0.008))
    return {"took": took}


async def _loaded(side: ClientSide, ask: dict[str, Any]) -> dict[str, Any]:
    """Many closed-loop clients without a pause."""
    took: list[float] = []
    begin = time.monotonic()
    end = begin + ask["seconds"]

    async def client(number: int) -> None:
        while (start := time.monotonic()) < end:
            await side.call(number, ask["tool"], ask["path"])
            took.append(time.monotonic() - start)

    await asyncio.gather(*(client(number) for number in range(ask["clients"])))
    return {"took": took, "calls_per_s": len(took) / (time.monotonic() - begin)}


async def _submit(side: ClientSide, ask: dict[str, Any]) -> dict[str, Any]:
    begin = time.monotonic()
    await side.submit_many(ask["tool"], ask["path"], ask["jobs"])
    return {"seconds": time.monotonic() - begin, "remaining": await side.remaining()}


async def _drained(side: ClientSide, ask: dict[str, Any]) -> dict[str, Any]:
    end = time.monotonic() + ask["seconds"]
    while True:
        left = await side.remaining()
        if left <= 0 or time.monotonic() >= end:
            break
        await asyncio.sleep(0.005)
    return {"at": time.monotonic(), "remaining": max(left, 0)}


async def _checked(side: ClientSide, ask: dict[str, Any]) -> dict[str, Any]:
    """How many of the jobs of the last drain have the right answer, where a system's results can be listed."""
    check = getattr(side, "right_answers", None)
    return {"right": None if check is None else await check(ask["text"])}


async def _steady(side: Any, ask: dict[str, Any]) -> dict[str, Any]:
    """Replace each finished job by a new one, so that the queue keeps its depth, until `jobs` are done."""
    first = await side.finished()
    begin, fed = time.monotonic(), 0
    while (done := await side.finished() - first) < ask["jobs"]:
        if time.monotonic() > begin + ask["seconds"]:
            raise TimeoutError(f"{done} jobs done in {ask['seconds']} s")
        if done > fed:
            await side.submit_many(ask["tool"], ask["path"], done - fed, sessions=ask["sessions"])
            fed = done
        else:
            await asyncio.sleep(0.005)
    return {"jobs": done, "seconds": time.monotonic() - begin}


_MEASURES = {
    "warm": _warm,
    "spaced": _spaced,
    "loaded": _loaded,
    "submit": _submit,
    "drained": _drained,
    "checked": _checked,
    "steady": _steady,
}


async def _client(side: ClientSide) -> None:
    await side.open()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        ask = json.loads(line)
        try:
            answer = await _MEASURES[ask["measure"]](side, ask)
        except Exception as error:  # noqa: BLE001 (whatever a system raises, the bench goes on with the next)
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    await side.close()


def main() -> None:
    """Run one end."""
    role, system = sys.argv[1:3]
    module: Any = importlib.import_module(f"bench.peers.{system}")
    if role == "serve":
        module.serve(int(sys.argv[3]))
    else:
        import uvloop

        uvloop.run(_client(module.Side()))


if __name__ == "__main__":
    main()
