"""All rules of a policy together: the strictest that matches decides, at whatever position it stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from contracts.levels import Level, highest
from worker.decisions import Decision, Judged, Verdict
from worker.policies.rules.conditions import Condition
from worker.policies.rules.schema import Action, Example, Limits
from worker.policies.rules.subject import Subject
from worker.secrets import Redacted

POLICY = "rules"


class Rule(Struct, frozen=True, kw_only=True):
    """One rule, compiled. `looks_at_answers`: whether what a tool opened, or the answer's level, may change it."""

    name: str
    action: Action
    reason: str
    conditions: tuple[Condition, ...]
    unless: tuple[Condition, ...] | None
    looks_at_answers: bool
    pattern: Any = None
    replacement: str = ""
    raise_to: Level = Level.PUBLIC
    must_match: tuple[Example, ...] = ()
    must_not_match: tuple[Example, ...] = ()

    def matches(self, subject: Subject) -> bool:
        """Whether the rule is about the call. What permits must cover all of it, what forbids a part of it."""
        every = self.action == "allow"
        if not all(condition(subject, every) for condition in self.conditions):
            return False
        return self.unless is None or not all(condition(subject, not every) for condition in self.unless)


class Blanker:
    """Several rules' patterns as one redactor."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules

    def is_clean(self, text: str) -> bool:
        """Never said of texts joined together: `^` and `$` mean those of one text."""
        return False

    def redact(self, text: str) -> Redacted:
        """The text with every hit replaced."""
        hits, level = set(), Level.PUBLIC
        for rule in self._rules:
            text, count = rule.pattern.subn(lambda _, rule=rule: rule.replacement, text)
            if count:
                hits.add(rule.name)
                level = highest((level, rule.raise_to))
        return Redacted(text, level, tuple(sorted(hits)))


class RuleBook:
    """The rules of one version of the policy. Never changes; a reload makes another one.

    `version` is the digest of the files it was read from.
    """

    def __init__(self, rules: Iterable[Rule], *, default: Verdict, limits: Limits, version: str) -> None:
        self.rules = tuple(rules)
        self.default, self.limits, self.version = default, limits, version
        self._verdicts = [rule for rule in self.rules if rule.action != "redact"]
        self._redacting = [rule for rule in self.rules if rule.action == "redact"]
        self._looks_at_answers = any(rule.looks_at_answers for rule in self._verdicts)

    def judge(self, judged: Judged) -> Decision:
        """The strictest matching rule's decision, before the call."""
        return self._decide(Subject(judged))

    def judge_answer(self, judged: Judged, opened: Sequence[str], level: Level, *, approved: bool) -> Decision | None:
        """A decision against letting the answer go: what was opened, or its level, is against a rule. None is none.

        `approved`: somebody said yes to the call, so that rules that ask are content.
        """
        if not self._looks_at_answers:
            return None
        decision = self._decide(Subject(judged, opened, level))
        if decision.verdict is Verdict.ALLOW or (decision.verdict is Verdict.ASK and approved):
            return None
        return decision

    def holds_back(self, judged: Judged) -> bool:
        """Whether output must not leave before the call has ended, since a rule may yet withhold or change it."""
        if any(rule.looks_at_answers for rule in self._verdicts):
            return True
        subject = Subject(judged)
        return any(rule.looks_at_answers or rule.matches(subject) for rule in self._redacting)

    def blanker(self, judged: Judged, opened: Sequence[str] = (), level: Level = Level.PUBLIC) -> Blanker | None:
        """What the redacting rules that match the call take out of its texts; None where none does.

        `opened` and `level` are those of its answer, once there is one.
        """
        if not self._redacting:
            return None
        subject = Subject(judged, opened, level)
        rules = [rule for rule in self._redacting if rule.matches(subject)]
        return Blanker(rules) if rules else None

    def _decide(self, subject: Subject) -> Decision:
        found: Rule | None = None
        for rule in self._verdicts:
            stricter = found is None or Verdict(rule.action).strictness > Verdict(found.action).strictness
            if stricter and rule.matches(subject):
                found = rule
        if found is None:
            return Decision(
                verdict=self.default,
                policy=POLICY,
                rule="default",
                reason="" if self.default is Verdict.ALLOW else _DEFAULT_REASON[self.default],
                version=self.version,
            )
        verdict = Verdict(found.action)
        reason = found.reason or ("" if verdict is Verdict.ALLOW else f"{_OWN_REASON[verdict]} {found.name}")
        return Decision(verdict=verdict, policy=POLICY, rule=found.name, reason=reason, version=self.version)


_DEFAULT_REASON = {
    Verdict.DENY: "no rule of the operator's policy allows this call",
    Verdict.ASK: "no rule of the operator's policy allows this call without approval",
}
_OWN_REASON = {
    Verdict.DENY: "forbidden by the operator's rule",
    Verdict.ASK: "approval is needed by the operator's rule",
}


class Rules:
    """The book in force. Replaced as a whole, so that every judgement is by one version."""

    def __init__(self, book: RuleBook) -> None:
        self.book = book

    def judge(self, judged: Judged) -> Decision:
        """The policy that goes into the gate."""
        return self.book.judge(judged)
