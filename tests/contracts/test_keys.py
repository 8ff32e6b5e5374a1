"""Every key's name, pinned: a renamed key is a lost session."""

from __future__ import annotations

import inspect
import re

from contracts import keys

PINNED = {
    "job_id": "{q}:s:c",
    "queue": "arq:queue:{q}",
    "batch": "arq:queue:{q}:batch",
    "job": "arq:job:{q}:s:c",
    "in_progress": "arq:in-progress:{q}:s:c",
    "leases": "reef:{q}:leases",
    "fence": "reef:{q}:fence",
    "bell": "reef:{q}:bell",
    "wake": "reef:{q}:wake:worker",
    "session": "reef:{q}:session:s",
    "running": "reef:{q}:running:s",
    "waiting": "reef:{q}:waiting:s",
    "workspace": "reef:{q}:workspace:w",
    "replies": "reef:{q}:replies:s",
    "done": "reef:{q}:done:s:c",
    "plan": "reef:{q}:plan:s",
    "plans": "reef:{q}:plans",
    "approval": "reef:{q}:approval:s",
    "nonces": "reef:{q}:nonces:s",
    "permit": "reef:{q}:permit:s:digest",
    "used": "reef:{q}:used:s:digest",
    "asks": "reef:{q}:asks",
    "rate": "reef:{q}:rate:scope",
    "stored": "reef:{q}:stored:scope",
    "active": "reef:{q}:active",
    "cancel": "reef:{q}:cancel:s:c",
    "cancel_channel": "reef:{q}:cancelled",
    "workers": "reef:{q}:workers",
    "audit": "reef:{q}:audit",
    "heads": "reef:{q}:heads",
    "dead": "reef:{q}:dead",
    "actions": "reef:{q}:actions",
    "pressure": "reef:{q}:pressure",
    "parked": "reef:{q}:parked",
}
FUNCTIONS = dict(inspect.getmembers(keys, inspect.isfunction))


def test_names_are_those_on_record_and_none_is_missing() -> None:
    made = {name: function(*inspect.signature(function).parameters) for name, function in FUNCTIONS.items()}
    assert made == PINNED


def test_all_keys_of_a_queue_lie_in_one_slot() -> None:
    assert {re.findall(r"\{(.*?)\}", name)[0] for name in PINNED.values()} == {"q"}


def test_every_key_tells_its_type_and_life() -> None:
    told = re.compile(r"^(String|Hash|List|Sorted set|Stream|Counter|Channel|The arq job id)")
    assert [name for name, function in FUNCTIONS.items() if not told.match(function.__doc__ or "")] == []
