"""What producers were told, what the streams hold, what the files show, and whether the three agree.

Producers write one JSON line an event; commands and edits leave their call id in files of the workspace. Neither goes
through Redis, so the verdict does not rest on what it judges.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMANDS = "effects.log"
EDITS = "edits.txt"
EDITS_END = "END\n"
ABSENT_AFTER = ("none", "failed")
"""`error.effect` of replies that say: what you asked for has not happened."""


def wall_ms() -> int:
    """The machine's wall clock, whatever a test has done to `time.time`."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000_000


class Book:
    """One producer's record of what it asked for and what it was told."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, event: str, call: str, **more: Any) -> None:
        """One event in one write."""
        line = json.dumps({"event": event, "call": call, "at_ms": wall_ms(), **more})
        os.write(self._file, line.encode() + b"\n")


@dataclass
class Call:
    """All that is known of one call from outside Redis."""

    call: str
    session: str = ""
    mark: str = ""
    """Where its effect shows: `command`, `edit`, `file`, or nothing for a read."""
    accepted_ms: int | None = None
    answers: set[str] = field(default_factory=set)
    """`unknown`, `refused` or `unseen`, as the client told."""
    told: list[tuple[str, str | None]] = field(default_factory=list)
    replies: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Terminal entries of the stream: (ms of the entry, reply)."""
    effects: int = 0


@dataclass
class Verdict:
    """The figures of one run. All of `faults` must be empty."""

    accepted: int = 0
    replied: int = 0
    unknown: int = 0
    refused: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    untrue: list[str] = field(default_factory=list)
    overlapped: list[str] = field(default_factory=list)
    contradicted: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    leftover: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    stale: int = 0
    longest_ms: int = 0
    longest_call: str = ""

    @property
    def faults(self) -> dict[str, list[str]]:
        """What must not be, by name."""
        names = ("missing", "doubled", "twice", "lost", "untrue", "overlapped", "contradicted", "unseen", "leftover")
        return {name: found for name in (*names, "crashed") if (found := getattr(self, name))}

    def table(self) -> str:
        """The figures for people."""
        rows = [
            ("accepted", self.accepted),
            ("replied", self.replied),
            ("missing: accepted, no terminal reply", len(self.missing)),
            ("doubled: more than one terminal reply", len(self.doubled)),
            ("twice: effects that ran more than once", len(self.twice)),
            ("lost: completed, but the effect is not there", len(self.lost)),
            ("untrue: said not done, but the effect is there", len(self.untrue)),
            ("overlapped: effects of a session side by side", len(self.overlapped)),
            ("contradicted: told otherwise than the stream", len(self.contradicted)),
            ("unseen: in the stream, not seen by the client", len(self.unseen)),
            ("left over: keys of calls that have ended", len(self.leftover)),
            ("crashed: processes that ended by themselves", len(self.crashed)),
            ("submits of unknown fate", self.unknown),
            ("submits refused", self.refused),
            ("stale finishes refused", self.stale),
            ("longest wait for a terminal reply, ms", self.longest_ms),
        ]
        lines = [f"{name:48} {value:>8}" for name, value in rows]
        lines.append("replies: " + ", ".join(f"{kind} {count}" for kind, count in self.kinds.most_common()))
        lines += [f"{name}: {', '.join(found[:12])}" for name, found in self.faults.items()]
        return "\n".join(lines)


def read_books(paths: Iterable[Path]) -> dict[str, Call]:
    """Calls by id, as their producers knew them."""
    calls: dict[str, Call] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            note = json.loads(line)
            call = calls.setdefault(note["call"], Call(note["call"]))
            match note["event"]:
                case "begin":
                    call.session, call.mark = note["session"], note["mark"]
                case "accepted":
                    call.accepted_ms = call.accepted_ms or note["at_ms"]
                case "told":
                    call.told.append((note["kind"], note["code"]))
                case answer:
                    call.answers.add(answer)
    return calls


def count_effects(calls: dict[str, Call], workspaces: Path) -> list[str]:
    """Fills in `effects` from the files. Returns the calls of one session that ran side by side though both completed.

    A call that was interrupted may run on beside the next one until its tree is dead; nobody claims otherwise.
    """
    overlapped = []
    for home in workspaces.iterdir():
        seen = Counter(re.findall(r"^\+(\S+)$", _text(home / COMMANDS), re.M))
        seen += Counter(re.findall(r"^=(\S+)$", _text(home / EDITS), re.M))
        seen += Counter(file.name for file in home.glob("file-*") if file.read_text() == file.name)
        for name, count in seen.items():
            if (call := calls.get(name.removeprefix("file-"))) is not None:
                call.effects += count
        inside = ""
        for sign, name in re.findall(r"^([+-])(\S+)$", _text(home / COMMANDS), re.M):
            if not _completed(calls.get(name)):
                continue
            if sign == "+":
                if inside:
                    overlapped.append(f"{inside}/{name}")
                inside = name
            elif inside == name:
                inside = ""
    return overlapped


def judge(calls: dict[str, Call], workspaces: Path) -> Verdict:
    """The verdict on calls whose `replies` stand filled in from the streams."""
    verdict = Verdict(overlapped=count_effects(calls, workspaces))
    for call in calls.values():
        accepted = call.accepted_ms is not None
        verdict.accepted += accepted
        verdict.replied += accepted and bool(call.replies)
        verdict.unknown += not accepted and "unknown" in call.answers
        verdict.refused += "refused" in call.answers
        if accepted and not call.replies:
            verdict.missing.append(call.call)
        if len(call.replies) > 1:
            verdict.doubled.append(call.call)
        if call.effects > 1:
            verdict.twice.append(call.call)
        if "unseen" in call.answers:
            verdict.unseen.append(call.call)
        if call.effects and not (accepted or "unknown" in call.answers):
            verdict.untrue.append(call.call)
        for at_ms, reply in call.replies:
            _judge_reply(verdict, call, at_ms, reply)
    return verdict


def _judge_reply(verdict: Verdict, call: Call, at_ms: int, reply: dict[str, Any]) -> None:
    code = reply["error"]["code"] if reply["error"] else None
    verdict.kinds[code or reply["kind"]] += 1
    if call.mark and reply["kind"] == "completed" and not call.effects:
        verdict.lost.append(call.call)
    if call.mark and reply["error"] and reply["error"]["effect"] in ABSENT_AFTER and call.effects:
        verdict.untrue.append(call.call)
    if any(told != (reply["kind"], code) for told in call.told):
        verdict.contradicted.append(f"{call.call} {call.told} {(reply['kind'], code)}")
    if call.accepted_ms is not None and at_ms - call.accepted_ms > verdict.longest_ms:
        verdict.longest_ms, verdict.longest_call = at_ms - call.accepted_ms, call.call


def _completed(call: Call | None) -> bool:
    return call is not None and any(reply["kind"] == "completed" for _, reply in call.replies)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
