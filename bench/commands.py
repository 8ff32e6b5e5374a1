"""How much a walled-in command costs over a bare `bash -c true` by asyncio, interleaved in the same run.

python -m bench.commands [--tier bwrap|landlock|none] [--rounds 150] [--ballast-mb 600]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable

from contracts.calls import Session
from contracts.tools import RunCommandArgs
from worker import bubblewrap
from worker.process import Limits
from worker.sandbox import TIERS, Sandbox, SandboxUnavailable, detect
from worker.tools.context import ToolContext
from worker.tools.run_command import run
from worker.workspace import Workspace

Call = Callable[[], Awaitable[object]]


async def bare() -> None:
    """asyncio's own way, nothing around it."""
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", "true", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    await process.communicate()


async def bare_bwrap() -> None:
    """The same with the namespaces and mounts of the real wall, and nothing of ours."""
    arguments = [bubblewrap.candidates()[0], *bubblewrap.system_arguments("/etc")]
    arguments += bubblewrap.job_arguments(workspace="/srv", writable=False, cwd="/", read_only=[], tmp_bytes=2**20)
    process = await asyncio.create_subprocess_exec(
        *arguments, "bash", "-c", "true", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    await process.communicate()


async def timed(call: Call) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    await call()
    return (time.perf_counter() - started) * 1000


async def side_by_side(call: Call, count: int, width: int) -> float:
    """Calls a second, `width` at a time."""
    left = count

    async def lane() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    started = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(width)))
    return count / (time.perf_counter() - started)


async def measure(sandbox: Sandbox, rounds: int) -> None:
    """Latency, throughput and output of one tier."""
    with tempfile.TemporaryDirectory() as root, Workspace.open(root) as workspace:

        def context() -> ToolContext:
            session = Session(name="bench", workspace="bench")
            return ToolContext(
                workspace=workspace, sandbox=sandbox, limits=Limits(), session=session, call=str(time.monotonic_ns())
            )

        async def walled() -> None:
            await run(RunCommandArgs(command="true"), context())

        for call in (bare, walled):
            await side_by_side(call, 16, 8)
        plain, ours = [], []
        for _ in range(rounds):
            plain.append(await timed(bare))
            ours.append(await timed(walled))
        for name, percent in (("median", 50), ("10th percentile", 10)):
            theirs, own = (statistics.quantiles(column, n=100)[percent - 1] for column in (plain, ours))
            print(f"{sandbox.tier}: {name}: bare {theirs:.2f} ms, ours {own:.2f} ms, {own - theirs:+.2f} ms")
        rates = [(await side_by_side(bare, rounds, 8), await side_by_side(walled, rounds, 8)) for _ in range(5)]
        rate, rate_ours = (statistics.median(column) for column in zip(*rates, strict=True))
        print(f"{sandbox.tier}: 8-way bare {rate:.0f}/s, ours {rate_ours:.0f}/s, {rate_ours / rate:.0%}")
        if sandbox.tier.startswith("bwrap"):
            alone = statistics.median([await side_by_side(bare_bwrap, rounds, 8) for _ in range(5)])
            print(f"{sandbox.tier}: 8-way bubblewrap by itself {alone:.0f}/s, {alone / rate:.0%} of bare")
        await output(workspace, context, sandbox)


async def output(workspace: Workspace, context: Callable[[], ToolContext], sandbox: Sandbox) -> None:
    """100 MB of output against the same through a pipe read by this process."""
    big = os.path.join(workspace.root, "big")
    with open(big, "wb") as file:  # noqa: ASYNC230 - before anything is measured
        for _ in range(100):
            file.write(b"0123456789abcde\n" * 65536)

    async def cat() -> None:
        process = await asyncio.create_subprocess_exec("cat", big, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        while await process.stdout.read(256 * 1024):
            pass
        await process.wait()

    async def ours() -> None:
        await run(RunCommandArgs(command="cat big"), context())

    await cat()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    theirs_ms, ours_ms = (
        statistics.median(column)
        for column in zip(*[(await timed(cat), await timed(ours)) for _ in range(5)], strict=True)
    )
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(
        f"{sandbox.tier}: 100 MB in {ours_ms:.0f} ms, `cat` alone {theirs_ms:.0f} ms, "
        f"{theirs_ms / ours_ms:.0%} of its rate, memory {grown / 1024:+.0f} MB"
    )


def main() -> None:
    """Every tier that works here, without and with ballast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tier", choices=[*TIERS, "none"], action="append")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--ballast-mb", type=int, default=600)
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop")
    options = parser.parse_args()
    if options.loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    else:
        factory = asyncio.new_event_loop
    held = b""
    for ballast_mb in (0, options.ballast_mb):
        held = os.urandom(1024) * 1024 * ballast_mb
        print(f"--- {len(held) >> 20} MB of ballast, {options.loop}")
        for tier in options.tier or [*TIERS, "none"]:
            try:
                sandbox = detect("off") if tier == "none" else detect("require", tiers=(tier,))
            except SandboxUnavailable as error:
                print(f"{tier}: {error}")
                continue
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(measure(sandbox, options.rounds))
            sandbox.close()


if __name__ == "__main__":
    main()
