"""What a policy file may hold. Every field that is not here is refused."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, json

Action = Literal["allow", "ask", "deny", "redact"]
OneOrMore = str | Annotated[list[str], Meta(min_length=1, max_length=1000)]
Name = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]


class Example(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that a rule must match, or must not. `output` is a text of the answer, for rules that redact."""

    tool: str
    args: dict[str, Any] = {}
    session: str = "example"
    tenant: str = "default"
    level: str = "PUBLIC"
    output: str | None = None


class ConditionsText(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a call must be like. All that is said must hold; of several values, one must."""

    tool: OneOrMore | None = None
    effect: Literal["read", "effect"] | None = None
    path: OneOrMore | None = None
    command: OneOrMore | None = None
    command_matches: str | None = None
    session: OneOrMore | None = None
    tenant: OneOrMore | None = None
    level: str | None = None


class RuleText(ConditionsText, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[rule]]`."""

    name: Name
    action: Action
    reason: Annotated[str, Meta(max_length=500)] = ""
    unless: ConditionsText | None = None
    pattern: str | None = None
    replacement: Annotated[str, Meta(max_length=200)] | None = None
    raise_to: str | None = None
    must_match: list[Example] = []
    must_not_match: list[Example] = []


PerSecond = Annotated[float, Meta(gt=0, le=1_000_000)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, Meta(ge=1, le=2**50)]


class Limit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How much one tenant, session or tool may use. `burst` calls may come at once, then `calls_per_s` refill it."""

    calls_per_s: PerSecond | None = None
    burst: Count | None = None
    concurrent: Count | None = None
    stored_bytes: Bytes | None = None


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[limits]`: for each queue, each session, and each tool in a queue. `window_s` is that of stored bytes."""

    tenant: Limit | None = None
    session: Limit | None = None
    tool: dict[str, Limit] = {}
    window_s: Annotated[int, Meta(ge=1, le=30 * 24 * 3600)] = 3600


class PolicyText(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file."""

    version: Literal[1]
    default: Literal["allow", "ask", "deny"] = "allow"
    rule: list[RuleText] = []
    limits: Limits = Limits()


def limits_for_scripts(limits: Limits) -> bytes:
    """The limits as the scripts take them (worker/lua/_limits.lua); empty where nothing is limited."""
    every = [limit for limit in (limits.tenant, limits.session, *limits.tool.values()) if limit is not None]
    if not every:
        return b""
    return json.encode(
        {
            **({"tenant": _for_scripts(limits.tenant)} if limits.tenant else {}),
            **({"session": _for_scripts(limits.session)} if limits.session else {}),
            "tool": {name: _for_scripts(limit) for name, limit in limits.tool.items()},
            "window_ms": limits.window_s * 1000,
            "crowds": any(limit.concurrent for limit in every),
            "stores": any(limit.stored_bytes for limit in every),
        }
    )


def _for_scripts(limit: Limit) -> dict[str, float]:
    found: dict[str, float] = {}
    if limit.calls_per_s is not None:
        burst = limit.burst or max(1, math.ceil(limit.calls_per_s))
        found |= {"interval_ms": 1000 / limit.calls_per_s, "burst": burst}
    if limit.concurrent is not None:
        found["concurrent"] = limit.concurrent
    if limit.stored_bytes is not None:
        found["bytes"] = limit.stored_bytes
    return found
