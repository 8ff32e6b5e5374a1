"""Secrets in what tools give back: found by rule or by value, and replaced before they leave the worker."""

from worker.secrets.outputs import Redacts, redact_output
from worker.secrets.redactor import Redacted, Redactor
from worker.secrets.rules import RULES, Rule
from worker.secrets.stream import StreamRedactor

__all__ = ["RULES", "Redacted", "Redactor", "Redacts", "Rule", "StreamRedactor", "redact_output"]
