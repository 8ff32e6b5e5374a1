"""From rounds to ratios: bench/results.json, bench/RESULTS.md and the plot."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.measures import Figures, middle
from bench.ratios import RATIOS, Found, ratios_of
from bench.systems import FLOOR, OURS, PEERS, python_of, versions_of


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def _cell(figures: Figures, name: str, form: str = "{:,.0f}") -> str:
    if name not in figures:
        return "-"
    return form.format(figures[name]) + (" *" if name == "jobs_per_s" and figures.get("unfinished") else "")


def _trip(figures: Figures) -> str:
    return " / ".join(_cell(figures, name, "{:.1f}") for name in ("p50_ms", "p95_ms", "p99_ms"))


def _main_table(systems: Mapping[str, Mapping[str, Figures]], notes: Mapping[str, str]) -> str:
    head = [
        "system",
        "drain at 100, jobs/s",
        "at 10",
        "two workers",
        "no-op",
        "enqueue, jobs/s",
        "worker CPU s / 1,000",
    ]
    head += [
        "Redis CPU s / 1,000",
        "p50 / p95 / p99 ms, low load",
        "50 clients, calls/s",
        "their p50 / p95 / p99 ms",
        "RSS MB",
    ]
    rows = []
    for name, parts in systems.items():
        at_100, load = parts.get("drain_100", {}), parts.get("loaded", {})
        shown = f"**{name}**" if name == OURS.name else name
        rows.append(
            [f"{shown} ({notes[name]})", _cell(at_100, "jobs_per_s"), _cell(parts.get("drain_10", {}), "jobs_per_s")]
        )
        rows[-1] += [_cell(parts.get(part, {}), "jobs_per_s") for part in ("drain_two", "drain_noop")]
        rows[-1] += [_cell(at_100, "enqueue_per_s"), _cell(at_100, "worker_cpu_s_per_1000", "{:.2f}")]
        rows[-1] += [_cell(at_100, "redis_cpu_s_per_1000", "{:.2f}"), _trip(parts.get("spaced", {}))]
        rows[-1] += [_cell(load, "calls_per_s"), _trip(load), _cell(at_100, "rss_mb")]
    return _table(head, rows)


def _commands_table(systems: Mapping[str, Mapping[str, Figures]]) -> str:
    head = [
        "system",
        "submit",
        "worker, draining",
        "together",
        "worker's writes a call",
        "as Redis counts, with scripts' inner",
    ]
    head += ["one call alone: client", "worker", "idle commands/s", "idle CPU %"]
    names = ["submit", "drain_worker", "drain_total", "drain_worker_writes", "drain_server_counted"]
    names += ["spaced_client", "spaced_worker"]
    rows = []
    for system, parts in systems.items():
        counted, idle = parts.get("commands", {}), parts.get("idle", {})
        if counted or idle:
            cells = [_cell(counted, name, "{:.2f}") for name in names]
            rows.append([system, *cells, _cell(idle, "commands_per_s", "{:.1f}"), _cell(idle, "cpu_percent", "{:.1f}")])
    return _table(head, rows)


def _growth_table(growth: Mapping[str, Mapping[str, Figures]]) -> str:
    head = ["what grows", "to", "worker, us a call", "Redis, us a call", "together", "calls/s at concurrency 10"]
    rows = []
    for part, costs in growth.items():
        for size, figures in costs.items():
            cells = [_cell(figures, name) for name in ("worker_us", "redis_us", "cost_us", "calls_per_s")]
            rows.append([{"depth": "queued calls", "sessions": "sessions known"}[part], _thousands(size), *cells])
    return _table(head, rows)


def _thousands(size: str) -> str:
    return f"{int(size):,}" if size.isdecimal() else size


def _sync_table(systems: Mapping[str, Mapping[str, Figures]]) -> str:
    head = [
        "system",
        "drain at 100, jobs/s",
        "p50 / p95 / p99 ms, low load",
        "50 clients, calls/s",
        "their p50 / p95 / p99 ms",
    ]
    rows = [
        [
            name,
            _cell(parts["sync_drain"], "jobs_per_s"),
            _trip(parts["sync_spaced"]),
            _cell(parts["sync_loaded"], "calls_per_s"),
            _trip(parts["sync_loaded"]),
        ]
        for name, parts in systems.items()
        if {"sync_drain", "sync_spaced", "sync_loaded"} <= set(parts)
    ]
    return _table(head, rows)


def write(
    found: Found,
    growth: Mapping[str, Mapping[str, Figures]],
    errors: list[str],
    server: str,
    options: argparse.Namespace,
    took_s: float,
) -> None:
    """Write results.json, RESULTS.md and results.svg into the output directory."""
    systems = {name: {part: middle(rounds) for part, rounds in parts.items()} for name, parts in found.items()}
    versions = versions_of("peers", ["arq", "saq", "streaq", "dramatiq", "redis", "hiredis", "uvloop"])
    versions |= {
        f"{name} (taskiq)": each for name, each in versions_of("taskiq", ["taskiq", "taskiq-redis", "redis"]).items()
    }
    results: dict[str, Any] = {
        "ratios": ratios_of(found, growth),
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "load_average": os.getloadavg()[0],
        "server": server,
        "versions": versions,
        "rounds": options.rounds,
        "quick": options.quick,
        "took_s": round(took_s),
        "errors": errors,
        "systems": systems,
        "growth": growth,
    }
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    (output / "results.json").write_text(json.dumps(_rounded(results), indent=1) + "\n")
    (output / "RESULTS.md").write_text(_page(results))
    plot = [python_of("peers"), str(Path(__file__).parent / "plot.py"), str(output / "results.json")]
    subprocess.run([*plot, str(output / "results.svg")], check=True)


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.4g}")
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
        case list():
            return [_rounded(each) for each in value]
        case _:
            return value


def _page(results: Mapping[str, Any]) -> str:
    systems, growth = results["systems"], results["growth"]
    notes = {system.name: system.note for system in (OURS, FLOOR, *PEERS)}
    machine, load = results["machine"], results["load_average"]
    how = f"{results['rounds']} interleaved round(s), medians; {results['took_s']} s in all"
    ran = (
        f"{results['when']}, {machine['cpus']} cores (load {load:.1f} at the end), Linux {machine['kernel']}, Python"
        f" {machine['python']}, {results['server']}; {how}."
    )
    lines = [
        "# Results of `make bench`",
        "",
        "Written by the bench; [docs/benchmarks.md](../docs/benchmarks.md) says how it measures. Every job reads a",
        "file of 1 KiB and returns its text, one worker process unless said. Figures of a shared machine move by a",
        "third from run to run: the ratios are made inside a round and hold better.",
        "",
        ran,
        "",
        "![drain rate, calls/s, round trip and CPU of each system](results.svg)",
        "",
        "## Ratios",
        "",
        _table(["ratio", "", "is"], [[f"`{n}`", f"{v:,.2f}", RATIOS[n]] for n, v in results["ratios"].items()]),
    ]
    sections: list[tuple[str, str, bool, Callable[[], str]]] = [
        ("Side by side", "No append-only file. `*`: not all jobs were done in the time allowed.",
         True, lambda: _main_table(systems, notes)),
        ("Commands", "On the wire, counted by a proxy; the last but one comes from the server's own counter.",
         any("commands" in parts or "idle" in parts for parts in systems.values()), lambda: _commands_table(systems)),
        ("Growth", "toolreef alone, CPU time a call.", bool(growth), lambda: _growth_table(growth)),
        ("With `appendfsync always`", "Every write of Redis is on the disk before it is answered.",
         any("sync_drain" in parts for parts in systems.values()), lambda: _sync_table(systems)),
    ]  # fmt: skip
    for title, said, wanted, table in sections:
        if wanted:
            lines += [f"## {title}", "", said, "", table()]
    if results["errors"]:
        lines += ["## Not measured", "", *(f"* {error}" for error in results["errors"]), ""]
    named = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines += ["## Versions", "", named + ".", ""]
    return "\n".join(lines)
