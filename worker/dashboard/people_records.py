"""What the API says to a person, and what a person says to it."""

from __future__ import annotations

from msgspec import Struct

from worker.dashboard.call_records import Level


class Me(Struct, frozen=True, kw_only=True):
    """Who asks, what they may do, and what this dashboard can do at all."""

    name: str
    roles: list[str]
    can_cancel: bool
    can_judge: bool
    queues: list[str]
    payloads: Level | None
    sign_in: bool
    version: str


class Fault(Struct, frozen=True, kw_only=True):
    """Why a request was not answered."""

    error: str
    message: str


class CancelBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a call is to end."""

    reason: str = ""


class JudgeBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which plan is judged, why, and for how long an approval holds."""

    digest: str
    reason: str = ""
    life_s: int = 3600


class Done(Struct, frozen=True, kw_only=True):
    """An action was recorded and carried out."""

    action: str
    actor: str
    session: str
    call: str = ""
