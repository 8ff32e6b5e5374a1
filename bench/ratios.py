"""The ratios that a run stands for, each made inside a round before the median is taken."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from bench.measures import Figures
from bench.systems import FLOOR, OURS, PEERS

Found = Mapping[str, Mapping[str, list[Figures]]]

RATIOS = {
    "drain_vs_best_peer": "jobs/s while draining at concurrency 100, ours by the best peer's of the same round",
    "drain10_vs_best_peer": "the same at concurrency 10",
    "noop_vs_best_peer": "the same at concurrency 100 with a tool that does nothing",
    "p50_vs_floor": "median round trip at low load, ours by that of a raw XADD / XREAD request and reply",
    "load50_vs_best_peer": "calls/s of 50 closed-loop clients, ours by the best peer's",
    "commands_per_call": "Redis commands on the wire, client's and worker's, a call while draining",
    "two_process_gain": "drain rate of two worker processes by that of one",
    "depth_growth": "CPU time of worker and Redis a call with 1,000,000 queued by that with 100",
    "session_growth": "the same with 100,000 sessions known by that with 50, 50 of them active",
    "idle_commands_per_s": "Redis commands a second of an idle worker",
}


def ratios_of(found: Found, growth: Mapping[str, Mapping[str, Figures]]) -> dict[str, float]:
    """Each ratio that the run measured: the median over the rounds of the ratio inside a round."""
    ours = found.get(OURS.name, {})

    def values(part: str, figure: str, system: str = OURS.name) -> dict[int, float]:
        return {figures["round"]: figures[figure] for figures in found.get(system, {}).get(part, [])}

    def against(one: dict[int, float], *others: dict[int, float]) -> float | None:
        pairs = [
            value / max(theirs)
            for number, value in one.items()
            if (theirs := [other[number] for other in others if number in other])
        ]
        return median(pairs) if pairs else None

    def against_best(part: str, figure: str) -> float | None:
        return against(values(part, figure), *(values(part, figure, peer.name) for peer in PEERS))

    def grown(part: str) -> float | None:
        costs = [figures["cost_us"] for name, figures in growth.get(part, {}).items() if name.isdecimal()]
        return costs[-1] / costs[0] if costs else None

    found_ratios = {
        "drain_vs_best_peer": against_best("drain_100", "jobs_per_s"),
        "drain10_vs_best_peer": against_best("drain_10", "jobs_per_s"),
        "noop_vs_best_peer": against_best("drain_noop", "jobs_per_s"),
        "p50_vs_floor": against(values("spaced", "p50_ms"), values("spaced", "p50_ms", FLOOR.name)),
        "load50_vs_best_peer": against_best("loaded", "calls_per_s"),
        "commands_per_call": ours["commands"][0]["drain_total"] if "commands" in ours else None,
        "two_process_gain": against(values("drain_two", "jobs_per_s"), values("drain_100", "jobs_per_s")),
        "depth_growth": grown("depth"),
        "session_growth": grown("sessions"),
        "idle_commands_per_s": ours["idle"][0]["commands_per_s"] if "idle" in ours else None,
    }
    return {name: round(value, 3) for name, value in found_ratios.items() if value is not None}
