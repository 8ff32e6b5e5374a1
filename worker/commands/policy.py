"""toolreef policy check / test / explain, and pending / approve / reject for calls that ask."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from contracts.approver import CALL_LIFE_S, DEFAULT_LIFE_S, MAX_LIFE_S, Approver, NothingToJudge
from contracts.levels import Level
from worker.commands.call import read_arguments
from worker.commands.connection import (
    FAILED,
    FAULT,
    OK,
    UsageError,
    add_queue,
    add_session,
    approver_key,
    complain,
    run_against_redis,
    say,
    settings_of,
)
from worker.settings import Settings

if TYPE_CHECKING:
    from worker.commands.explain import Explainer, Question


def register(commands: Any) -> None:
    """Adds the command."""
    parser: ArgumentParser = commands.add_parser("policy", help="check, test and explain rules; answer calls that ask")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, act, help_text in (
        ("check", _check, "whether a worker would take these policy files"),
        ("test", _test, "try every example of these policy files"),
    ):
        each: ArgumentParser = verbs.add_parser(verb, help=help_text)
        each.add_argument("files", nargs="+", type=Path, metavar="FILE")
        each.set_defaults(run=act)
    _register_explain(verbs)
    pending: ArgumentParser = verbs.add_parser("pending", help="the calls that wait for a yes")
    add_session(pending, required=False)
    add_queue(pending)
    pending.set_defaults(run=_pending)
    for verb, life_s, help_text in (
        ("approve", CALL_LIFE_S, "let one call of this content run once (the approver's Redis user)"),
        ("reject", DEFAULT_LIFE_S, "refuse calls of this content (the approver's Redis user)"),
    ):
        each = verbs.add_parser(verb, help=help_text)
        add_session(each)
        add_queue(each)
        each.add_argument("--digest", required=True, help="the digest of the call's content")
        each.add_argument("--approver", help="who judges (default: your user name)")
        each.add_argument("--reason", default="", help="why")
        each.add_argument("--for", dest="life_s", type=int, default=life_s, metavar="SECONDS", help=f"default {life_s}")
        each.set_defaults(run=_answer)


def _register_explain(verbs: Any) -> None:
    explain: ArgumentParser = verbs.add_parser("explain", help="what would be decided of a call; nothing is run")
    explain.add_argument("tool", nargs="?", metavar="TOOL")
    explain.add_argument("arguments", nargs="*", metavar="key=value", help="the tool's arguments")
    explain.add_argument("--args", metavar="JSON", help="the tool's arguments as one JSON object")
    explain.add_argument("--batch", metavar="FILE", help='JSON lines {"tool","args"}; - is standard input')
    of_policy = "policy files instead of those of TOOLREEF_POLICY; '' for none"
    explain.add_argument("--policy", type=str, metavar="FILE", help=of_policy)
    explain.add_argument("--workspace", metavar="W", help="a workspace's name, or the absolute path of its directory")
    explain.add_argument("--mode", choices=["normal", "plan"], default="normal", help="the session's mode")
    levels = [level.value for level in Level]
    explain.add_argument("--level", choices=levels, default="PUBLIC", help="the session's taint so far")
    add_session(explain, required=False)
    add_queue(explain)
    explain.set_defaults(run=_explain)


def _check(options: Namespace) -> int:
    from worker.policies.rules.load import PolicyError, load_policy

    try:
        book = load_policy(options.files)
    except PolicyError as error:
        return _refuse(error)
    say(
        {
            "version": book.version,
            "default": book.default.value,
            "rules": [rule.name for rule in book.rules],
            "limits": book.limits,
            "without_examples": [rule.name for rule in book.rules if not (rule.must_match and rule.must_not_match)],
        }
    )
    return OK


def _test(options: Namespace) -> int:
    from worker.policies.rules.load import PolicyError, load_policy, try_examples

    try:
        book = load_policy(options.files, examples=False)
    except PolicyError as error:
        return _refuse(error)
    status = OK
    for rule in book.rules:
        for tried in try_examples(rule):
            example = {"tool": tried.example.tool, "args": tried.example.args}
            say({"rule": rule.name, "expected": tried.kind, "ok": not tried.problem, **example})
            if tried.problem:
                complain(tried.problem)
                status = FAULT
    return status


def _refuse(error: Exception) -> int:
    for line in str(error).splitlines():
        complain(line)
    return FAULT


def _explain(options: Namespace) -> int:
    # Imported here: the parser of command lines and its grammar would slow every other command's start.
    from worker.commands.explain import Explainer, Question

    settings = settings_of(options)
    if options.policy is not None:
        settings = structs.replace(settings, policy=options.policy)
    base = Question(
        tool=options.tool or "",
        session=options.session or "default",
        workspace=options.workspace,
        mode=options.mode,
        level=Level(options.level),
    )
    explainer = Explainer(settings)
    if options.batch is not None:
        if options.tool or options.args:
            raise UsageError("--batch takes its calls from the file: leave TOOL and --args out")
        return _explain_batch(explainer, base, options.batch)
    if not options.tool:
        raise UsageError("which tool?")
    question = structs.replace(base, args=read_arguments(options.tool, options.arguments, options.args))
    version = {"policy_version": explainer.version} if explainer.version else {}
    say({"tool": question.tool, **structs.asdict(explainer.explain(question)), **version})
    return OK


def _explain_batch(explainer: Explainer, base: Question, file: str) -> int:
    if file == "-":
        for explained in explainer.explain_lines(sys.stdin.buffer, base):
            say(explained)
        return OK
    with Path(file).open("rb") as lines:
        for explained in explainer.explain_lines(lines, base):
            say(explained)
    return OK


def _pending(options: Namespace) -> int:
    async def act(settings: Settings, url: str) -> int:
        async with Approver.connect(url, queue=settings.queue) as approver:
            for pending in await approver.pending(options.session):
                say({"asked_ms": pending.asked_ms, **msgspec.to_builtins(pending.ask)})
        return OK

    return run_against_redis(options, act)


def _answer(options: Namespace) -> int:
    if not 1 <= options.life_s <= MAX_LIFE_S:
        raise UsageError(f"--for {options.life_s}: must be between a second and seven days")
    name = options.approver or getpass.getuser()

    async def act(settings: Settings, url: str) -> int:
        async with Approver.connect(url, queue=settings.queue).signing_with(approver_key(settings)) as approver:
            answer = approver.approve_call if options.verb == "approve" else approver.reject_call
            try:
                permit = await answer(
                    options.session, options.digest, approver=name, reason=options.reason, life_s=options.life_s
                )
            except NothingToJudge as error:
                complain(str(error))
                return FAILED
        say({"session": options.session, "digest": options.digest, **msgspec.to_builtins(permit)})
        return OK

    return run_against_redis(options, act)
