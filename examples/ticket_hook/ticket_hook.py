"""Two hooks: a command that deploys must name a ticket, and mail addresses in answers are masked."""

from __future__ import annotations

import re
from typing import Any

from contracts.hooks import AnswerEvent, Ask, CallEvent, Deny, Rewrite
from contracts.levels import Level

TICKET = re.compile(r"\bOPS-[0-9]{1,6}\b")
MAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}\.[\w.]{2,63}")


def needs_ticket(event: CallEvent) -> Deny | Ask | None:
    """Denies a deployment without a ticket; asks somebody where the session has seen confidential data."""
    command = event.args.get("command", "")
    if event.tool != "run_command" or "deploy" not in command:
        return None
    if not TICKET.search(command):
        return Deny("a deployment must name its ticket: add '# OPS-<number>' to the command")
    if event.taint >= Level.CONFIDENTIAL:
        return Ask("this session has seen confidential data")
    return None


def hides_mail(event: AnswerEvent) -> Rewrite | None:
    """Masks mail addresses in every text of an output. Whoever got near them is INTERNAL from then on."""
    masked = _masked(event.output)
    return None if masked == event.output else Rewrite(output=masked, level=Level.INTERNAL)


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return MAIL.sub("[mail]", value)
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if isinstance(value, dict):
        return {key: _masked(item) for key, item in value.items()}
    return value
