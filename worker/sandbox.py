"""The wall around commands: which one the host offers, tried for real before it is trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SandboxMode = Literal["require", "prefer", "off"]


class SandboxUnavailable(Exception):
    """No tier works here. The message names the call that failed; `remedy` says what to change."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.remedy = remedy


@dataclass(slots=True)
class Sandbox:
    """The wall commands are run behind. `tier` is "bwrap+seccomp", "landlock+seccomp" or "none"."""

    tier: str


def detect(mode: SandboxMode = "require") -> Sandbox:
    """The best tier that the host offers.

    Raises:
        SandboxUnavailable: mode is `require` and no tier works.
    """
    if mode == "require":
        raise SandboxUnavailable("no tier is built yet")
    return Sandbox("none")
