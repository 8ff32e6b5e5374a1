"""The order of levels, and where a session stands with its plan. Whatever is not understood is the stricter answer."""

from __future__ import annotations

import itertools

import pytest

from contracts.levels import Level, highest, read_level
from contracts.plans import Approval, Plan, digest_of, state_of
from contracts.tools import PlanProposeArgs, PlanStep

NOW = 1_796_000_000_000
PLAN = Plan(digest="d2", version=2)


def approval(**changes: object) -> Approval:
    fields: dict[str, object] = {"digest": "d2", "verdict": "approved", "approver": "ann", "expires_ms": NOW + 1}
    return Approval(**(fields | changes))  # type: ignore[arg-type]


def test_levels_ascend_in_the_order_written() -> None:
    assert [level.value for level in sorted(Level)] == ["PUBLIC", "INTERNAL", "CONFIDENTIAL", "RESTRICTED"]
    for low, high in itertools.combinations(Level, 2):
        assert low < high
        assert high > low
        assert low <= high
        assert high >= low
        assert not high <= low
    assert highest([Level.INTERNAL, Level.RESTRICTED, Level.PUBLIC]) is Level.RESTRICTED
    assert highest([]) is Level.PUBLIC


@pytest.mark.parametrize(
    "text, level",
    [
        (None, Level.PUBLIC),
        ("", Level.PUBLIC),
        ("INTERNAL", Level.INTERNAL),
        ("internal", Level.RESTRICTED),
        ("TOP SECRET", Level.RESTRICTED),
        ("PUBLIC ", Level.RESTRICTED),
    ],
)
def test_a_word_that_is_no_level_is_the_highest(text: str | None, level: Level) -> None:
    assert read_level(text) is level


@pytest.mark.parametrize(
    "mode, plan, verdict, state",
    [
        ("normal", None, None, "normal"),
        ("plan", None, None, "planning"),
        ("plan", None, approval(), "planning"),
        ("plan", PLAN, None, "awaiting"),
        ("plan", PLAN, approval(), "approved"),
        ("plan", PLAN, approval(digest="d1"), "awaiting"),
        ("plan", PLAN, approval(expires_ms=NOW), "awaiting"),
        ("plan", PLAN, approval(expires_ms=NOW - 1), "awaiting"),
        ("plan", PLAN, approval(verdict="rejected"), "planning"),
        ("plan", PLAN, approval(verdict="rejected", digest="d1"), "awaiting"),
        ("Normal", None, None, "planning"),
        ("", PLAN, None, "awaiting"),
    ],
)
def test_where_a_session_stands(mode: str, plan: Plan | None, verdict: Approval | None, state: str) -> None:
    assert state_of(mode, plan, verdict, NOW) == state


def test_a_plans_digest_changes_with_each_of_its_words() -> None:
    plans = [
        PlanProposeArgs(summary="a"),
        PlanProposeArgs(summary="b"),
        PlanProposeArgs(summary="a", steps=[PlanStep(description="x")]),
        PlanProposeArgs(summary="a", steps=[PlanStep(description="x", paths=["p"])]),
        PlanProposeArgs(summary="a", steps=[PlanStep(description="x", tools=["p"])]),
        PlanProposeArgs(summary="a", steps=[PlanStep(description="x"), PlanStep(description="y")]),
        PlanProposeArgs(summary="a", steps=[PlanStep(description="y"), PlanStep(description="x")]),
    ]
    digests = [digest_of(plan) for plan in plans]
    assert len(set(digests)) == len(plans)
    assert digests == [digest_of(plan) for plan in plans]
    assert all(len(digest) == 64 for digest in digests)
