"""Draws results.json as an SVG. Runs in the peers' environment, which has matplotlib."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "toolreef"

from matplotlib import pyplot  # noqa: E402 (the backend is chosen first)

_OURS, _OTHERS, _FLOOR = "#0b6e6e", "#a9b4c0", "#d9a441"
_PANELS = (
    ("Drain, jobs/s (concurrency 100)", "drain_100", "jobs_per_s", False, "{:,.0f}"),
    ("50 closed-loop clients, calls/s", "loaded", "calls_per_s", False, "{:,.0f}"),
    ("Round trip p50 at low load, ms (log)", "spaced", "p50_ms", True, "{:.1f}"),
    ("Worker CPU seconds per 1,000 jobs", "drain_100", "worker_cpu_s_per_1000", False, "{:.2f}"),
)


def _colour(name: str) -> str:
    return {"toolreef": _OURS, "floor": _FLOOR}.get(name, _OTHERS)


def _panel(axes: Any, systems: dict[str, Any], panel: tuple[str, str, str, bool, str]) -> None:
    title, part, figure, log, form = panel
    bars = [(name, parts[part][figure]) for name, parts in systems.items() if figure in parts.get(part, {})]
    names, values = [name for name, _ in bars][::-1], [value for _, value in bars][::-1]
    drawn = axes.barh(names, values, color=[_colour(name) for name in names], log=log)
    axes.bar_label(drawn, labels=[form.format(value) for value in values], padding=3, fontsize=8)
    axes.set_title(title, fontsize=10, loc="left")
    axes.margins(x=0.15)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main() -> None:
    """`plot.py results.json results.svg`."""
    source, target = map(Path, sys.argv[1:3])
    systems = json.loads(source.read_text())["systems"]
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 6.5), layout="constrained")
    for place, panel in zip(axes.flat, _PANELS, strict=True):
        _panel(place, systems, panel)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
