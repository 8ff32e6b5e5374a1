"""`python -m bench`: the engine beside its peers; writes RESULTS.md, results.json and a plot."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench import counts, growth, report
from bench.measures import JOBS, Bench, Figures, drain, loaded, spaced, spaced_in_turns
from bench.peers import FILE
from bench.server import Server
from bench.systems import FLOOR, OURS, PEERS, MeasureFailed, System, prepare_environments

PARTS = ("latency", "load", "drain", "drain10", "two", "noop", "commands", "idle", "depth", "sessions", "sync")
ROUNDS_WITHIN_S = 520.0
"""A round that would likely end later is not begun: the whole stays near twelve minutes, also on a busy machine."""

ALL_WITHIN_S, QUICK_WITHIN_S = 700.0, 105.0
"""Nothing is begun after this."""

LOW_LOAD_STARTS = 5

_SLOW = ("arq", "streaq")
"""Whose further figures would say nothing new: arq by default waits for its poll, streaq is the slowest."""

_WITH_TWO = ("toolreef", "arq 10 ms", "SAQ", "taskiq list", "dramatiq")


class Run:
    """One run of the bench: what is asked for, and what was found."""

    def __init__(self, bench: Bench, options: argparse.Namespace) -> None:
        self.bench = bench
        self.options = options
        self.parts: Sequence[str] = options.only or PARTS
        self.found: dict[str, dict[str, list[Figures]]] = {}
        self.growth: dict[str, dict[str, Figures]] = {}
        self.errors: list[str] = []
        self.began = time.monotonic()
        self.round = 0

    def systems(self) -> list[System]:
        """The systems asked for."""
        every = [OURS, *PEERS]
        chosen = self.options.systems
        return [each for each in every if not chosen or each.name in chosen]

    def keep(self, system: System, part: str, figures: Figures) -> None:
        """Add what one round of one part found."""
        self.found.setdefault(system.name, {}).setdefault(part, []).append({**figures, "round": self.round})
        words = " ".join(f"{name}={value:.4g}" for name, value in figures.items() if isinstance(value, (int, float)))
        print(f"{time.monotonic() - self.began:6.0f} s  {system.name:14} {part:9} {words}", file=sys.stderr)

    def attempt(self, system: System, what: str, do: Callable[[], Any]) -> None:
        """Go on with the next system when one can't do something or time is up, and say so in the report."""
        try:
            if time.monotonic() - self.began > (QUICK_WITHIN_S if self.options.quick else ALL_WITHIN_S):
                raise MeasureFailed("no time left")
            do()
        except MeasureFailed as error:
            self.errors.append(f"{system.name}, {what}: {error}")
            print(f"{system.name}, {what}: {error}", file=sys.stderr)


def _together(run: Run, system: System) -> None:
    """One boot at concurrency 100 for all that needs it: low load, 50 clients, drain."""
    short = run.options.quick
    with run.bench.pair(system, 100) as (workers, client):
        if "latency" in run.parts and system is not OURS:
            run.keep(system, "spaced", spaced(run.bench, client, 1.2 if short else 2.5))
        if "load" in run.parts:
            run.keep(system, "loaded", loaded(run.bench, client, 1.0 if short else 2.0))
        if "drain" in run.parts:
            run.keep(system, "drain_100", _drain(run, workers, client))


def _beside_floor(run: Run) -> None:
    """Ours and the floor at low load, in the same moments: their ratio is the figure."""
    bench = run.bench
    with bench.pair(OURS, 100, clients=1) as (_, ours), bench.pair(FLOOR, 100, clients=1, beside=True) as (_, floor):
        for system, figures in zip((OURS, FLOOR), spaced_in_turns(bench, [ours, floor], 2.5), strict=True):
            run.keep(system, "spaced", figures)


def _drain(run: Run, workers: Any, client: Any, tool: str = "read") -> Figures:
    jobs, limit_s = (2000, 2.5) if run.options.quick else (JOBS, 6.0)
    figures = drain(run.bench, workers, client, tool, jobs, limit_s)
    if figures["unfinished"] == 0 and tool == "read":
        figures["right_answers"] = client.ask("checked", text=run.bench.path.read_text())["right"]
    return figures


def _drain_alone(run: Run, system: System, part: str, concurrency: int, workers: int = 1, tool: str = "read") -> None:
    with run.bench.pair(system, concurrency, workers=workers, tool=tool) as (running, client):
        run.keep(system, part, _drain(run, running, client, tool))


def _low_load(run: Run) -> None:
    """Over several starts: where a process lies in memory moves its median by a few hundredths."""
    for number in range(1 if run.options.quick else LOW_LOAD_STARTS):
        run.round = number
        run.attempt(OURS, "low load", partial(_beside_floor, run))


def _rounds(run: Run) -> None:
    took_s = 0.0
    for number in range(run.options.rounds):
        before_s = time.monotonic() - run.began
        if before_s + took_s > ROUNDS_WITHIN_S:
            print(f"no time for round {number + 1}", file=sys.stderr)
            run.options.rounds = number
            break
        run.round = number
        systems = run.systems()
        turn = number * 3 % len(systems)
        for system in systems[turn:] + systems[:turn]:
            if {"latency", "load", "drain"} & set(run.parts):
                run.attempt(system, "concurrency 100", partial(_together, run, system))
            if "drain10" in run.parts and number < 2:
                run.attempt(system, "drain at 10", partial(_drain_alone, run, system, "drain_10", 10))
            if "two" in run.parts and number < 2 and system.name in _WITH_TWO:
                run.attempt(system, "two workers", partial(_drain_alone, run, system, "drain_two", 100, workers=2))
            if "noop" in run.parts and number < 1 and system.name not in _SLOW:
                run.attempt(system, "no-op", partial(_drain_alone, run, system, "drain_noop", 100, tool="noop"))
        took_s = time.monotonic() - run.began - before_s


def _once(run: Run) -> None:
    systems = run.systems()
    if "commands" in run.parts:
        for system in systems:

            def counted(system: System = system) -> None:
                run.keep(
                    system, "commands", counts.commands(run.bench, system, 100, 1000, 1.0 if run.options.quick else 3.0)
                )

            run.attempt(system, "commands", counted)
    if "idle" in run.parts:

        def idle() -> None:
            found = counts.idle(run.bench, systems, 100, 4.0 if run.options.quick else 10.0)
            for each in systems:
                run.keep(each, "idle", found[each.name])

        run.attempt(OURS, "idle", idle)
    for part, measure in (("depth", growth.depth_costs), ("sessions", growth.session_costs)):
        if part in run.parts and OURS in systems:

            def grow(part: str = part, measure: Callable[[Bench], dict[str, Figures]] = measure) -> None:
                run.growth[part] = measure(run.bench)
                print(f"{time.monotonic() - run.began:6.0f} s  {part} {run.growth[part]}", file=sys.stderr)

            run.attempt(OURS, part, grow)
    if "sync" in run.parts:
        for system in (each for each in systems if each.name not in _SLOW):

            def synced(system: System = system) -> None:
                with run.bench.pair(system, 100, sync_always=True) as (workers, client):
                    run.keep(system, "sync_spaced", spaced(run.bench, client, 1.5))
                    run.keep(system, "sync_loaded", loaded(run.bench, client, 1.5))
                    run.keep(system, "sync_drain", drain(run.bench, workers, client, "read", 2000, 4.0))

            run.attempt(system, "appendfsync always", synced)


def main() -> int:
    """Run what the options ask for. 1 if nothing could be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, under two minutes")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; may be given several times")
    parser.add_argument("--systems", action="append", metavar="NAME", help="a system; may be given several times")
    parser.add_argument("--rounds", type=int, help="interleaved rounds (3; with --quick 1)")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="where the results go")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    options.rounds = options.rounds or (1 if options.quick else 3)
    if options.quick and not options.only:
        options.only = ["latency", "load", "drain", "idle", "commands"]
    prepare_environments()
    with tempfile.TemporaryDirectory(prefix="toolreef-bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        path = directory / FILE
        path.write_text(("a line of text, 32 bytes of it.\n" * 32)[:1024])
        server = Server(directory)
        run = Run(Bench(server=server, directory=directory, path=path), options)
        try:
            if "latency" in run.parts and OURS in run.systems():
                _low_load(run)
            _rounds(run)
            _once(run)
            report.write(run.found, run.growth, run.errors, server.version, options, time.monotonic() - run.began)
        finally:
            server.close()
    return 0 if run.found else 1


if __name__ == "__main__":
    sys.exit(main())
