"""Hooks that misbehave: how, stands in the first name of the call's path. Installed as a package by the tests."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import time
from typing import Any

from contracts.hooks import AnswerEvent, Ask, CallEvent, Deny, Rewrite, Withhold
from contracts.levels import Level


def before(event: CallEvent) -> Any:
    return misbehave(event.args.get("path", "").removeprefix("before-"), event) if told(event, "before-") else None


def after(event: AnswerEvent) -> Any:
    return misbehave(event.args.get("path", "").removeprefix("after-"), event) if told(event, "after-") else None


def told(event: CallEvent, when: str) -> bool:
    return str(event.args.get("path", "")).startswith(when)


def misbehave(how: str, event: CallEvent) -> Any:
    if how == "busy":
        while True:
            pass
    if how == "regex":
        re.match(r"(a+)+$", "a" * 60 + "b")
    if how == "sleep":
        time.sleep(3600)
    if how == "raise":
        raise RuntimeError("the secret is 42")
    if how == "exit":
        sys.exit(0)
    if how == "os_exit":
        os._exit(0)
    if how == "kill":
        os.kill(os.getpid(), 9)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "recursion":
        misbehave(how, event)
    if how == "memory":
        return Deny("x" * (1 << 40))
    if how == "huge":
        return Rewrite(output={"text": "x" * (64 << 20), "encoding": "utf-8"})
    if how == "type":
        return True
    if how == "shape":
        return Rewrite(output={"nothing": 1})
    if how == "child":
        subprocess.Popen(["sleep", "4711"])
        time.sleep(3600)
    return behave(how, event)


def behave(how: str, event: CallEvent) -> Any:
    if how == "print":
        for _ in range(2000):
            print("x" * 1000, flush=True)
            print("y" * 1000, file=sys.stderr, flush=True)
    if how == "read":
        sys.stdin.read()
    if how == "deny":
        return Deny("because")
    if how == "ask":
        return Ask("may I?")
    if how == "withhold":
        return Withhold("nobody needs to know")
    if how == "level":
        return Rewrite(level=Level.CONFIDENTIAL)
    if how == "lower":
        return Rewrite(level=Level.PUBLIC)
    if how == "rewrite" and isinstance(event, AnswerEvent) and event.output is not None:
        return Rewrite(output={**event.output, "text": "AKIA" + "IOSFODNN7EXAMPLE"})
    return None
