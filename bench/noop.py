"""toolreef's command line with one more tool, `noop`: what the engine costs around a tool that does nothing.

Only the bench starts it. The tables of a product's worker stay as they are.
"""

from __future__ import annotations

from typing import Any

from contracts.tools import TOOLS, Args, Effect, Output, Tool


class _NoopArgs(Args, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _NoopOutput(Output, frozen=True, kw_only=True):
    text: str = ""


async def _run(args: Any, context: Any) -> Output:
    return _NoopOutput()


def main() -> None:
    """Add the tool to each table, then be the command line. The tables are read when modules are imported."""
    TOOLS["noop"] = Tool(name="noop", args=_NoopArgs, output=_NoopOutput, effect=Effect.READ, description="Nothing.")

    from worker import registry
    from worker.decisions import Decision, Judged, allow

    def judge(judged: Judged) -> Decision | None:
        return allow("noop") if judged.call.tool == "noop" else None

    registry.TOOLS = {**registry.TOOLS, "noop": _run}
    registry.POLICIES = {**registry.POLICIES, "noop": judge}

    from worker.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
