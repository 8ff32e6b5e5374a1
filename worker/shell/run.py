"""Follows one command into whatever it runs: functions, wrappers, shells, interpreters, files just written."""

from __future__ import annotations

import functools
import re
import shlex
from typing import NamedTuple

from worker.shell import code, interpreters, marks, shells
from worker.shell.builtins import EFFECTS, LINK
from worker.shell.environment import consequences, is_followed
from worker.shell.inner import Inner
from worker.shell.language_table import INTERPRETERS
from worker.shell.launch_table import LAUNCHERS
from worker.shell.limits import MAX_DEPTH, Meter, TooComplex
from worker.shell.marks import DECODED, DOWNLOAD, FOREIGN, LISTED, SELF, UNKNOWN, UNSET
from worker.shell.names import COMMANDS
from worker.shell.nodes import Function
from worker.shell.paths import join
from worker.shell.producers import printed
from worker.shell.state import Call, State
from worker.shell.wrappers import unwrapped

_NO_VALUES = str.maketrans("", "", marks.VALUES)
_RECURSIVE = re.compile(r"-[a-zA-Z]*[rR]|--rec")
_MAX_TRAIL = 16
_ARITHMETIC = frozenset(
    [
        "test",
        "[",
        "let",
        "declare",
        "typeset",
        "local",
        "readonly",
        "export",
        "printf",
        "read",
        "unset",
        "mapfile",
        "wait",
    ]
)
"""Builtins that evaluate a subscript in their arguments, substitutions and all."""
_DECLARES = frozenset({"export", "declare", "typeset", "readonly", "local"})
_INHERIT = frozenset({"env", "command", "builtin", "exec", "nohup", "timeout", "time", "nice"})


class Finding(NamedTuple):
    """Something about the line that is no command: see the kinds in `worker.policies.denylist.code`."""

    kind: str
    subject: str
    trail: tuple[str, ...]


class Runner:
    """The part of the walk that deals with commands; the walker deals with the grammar around them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.meter = Meter()
        self.calls: list[Call] = []
        self.findings: list[Finding] = []
        self.doubt = False
        self.depth = 0
        self.forking = 0
        self.detached = 0
        self.tolerant = 0
        self.trail: tuple[str, ...] = ()
        self.calling: dict[int, int] = {}

    def program(self, text: str) -> str:
        """Reads and walks a text; what it prints."""
        raise NotImplementedError

    def call_function(self, function: Function, call: Call) -> str:
        """Walks a function's body."""
        raise NotImplementedError

    def find(self, kind: str, subject: str) -> None:
        """Notes a finding where the walk is now."""
        self.findings.append(Finding(kind, subject, self.trail))

    def run(self, call: Call) -> str:
        """Follows one command; what it prints, as far as known."""
        self.meter.step(3)
        self.depth += 1
        if self.depth > MAX_DEPTH or len(self.trail) > _MAX_TRAIL:
            raise TooComplex("it nests too deep")
        try:
            return self._run(call)
        finally:
            self.depth -= 1

    def _run(self, call: Call) -> str:
        word = call.argv[0]
        if not word.strip(UNSET):
            if word:
                self.find("unset_command", marks.plain(" ".join(call.argv[:2])))
            return self.run(_with(call, call.argv[1:])) if len(call.argv) > 1 else ""
        self.calls.append(call)
        if len(word) > 4096:
            return UNKNOWN
        state = self.state
        if word in state.functions:
            return self.call_function(state.functions[word], call)
        if word in state.aliases and state.expand_aliases:
            alias = state.aliases[word]
            rest = " ".join(shlex.quote(argument) for argument in call.argv[1:])
            return self._within(f"alias {word}", lambda: self.script(f"{alias} {rest}", ()))
        if "\0" + word in state.aliases:
            return self.run(_with(call, (state.aliases["\0" + word], *call.argv[1:])))
        name = word.rpartition("/")[2] if "/" in word else word
        if not marks.is_known(name):
            return self._masked(call, name)
        if state.files:
            ran = self._file_as_command(call, word)
            if ran is not None:
                return ran
        if word == SELF:
            return UNKNOWN
        return self._known(name, call)

    def _masked(self, call: Call, name: str) -> str:
        if SELF in name:
            if self.forking:
                self.find("fork_bomb", "a script that starts itself in the background or in a pipeline")
            return UNKNOWN
        for mark in FOREIGN:
            if mark in name:
                self.find("foreign_code", marks.plain(name))
                return UNKNOWN
        bare = name.replace(UNSET, "")
        if bare and marks.is_known(bare):
            return self.run(_with(call, (bare, *call.argv[1:])))
        if marks.only_marks(name):
            if LISTED not in name:
                unset = not name.strip(UNSET)
                self.find("unset_command" if unset else "unknown_command", marks.plain(" ".join(call.argv)))
            self.run_as_any(call)
            return UNKNOWN
        bare = name.translate(_NO_VALUES)
        if bare in COMMANDS:
            return self.run(_with(call, (bare, *call.argv[1:])))
        if not marks.has_glob(name):
            self.find("unset_command", marks.plain(name))
            return UNKNOWN
        if not name.strip(marks.MARKS) or not _may_be_program(call.argv[0]):
            self.run_as_any(call)
            return UNKNOWN
        pattern = marks.glob_pattern(name)
        for known in _matching(pattern, COMMANDS)[:80]:
            self.run(_with(call, (known, *call.argv[1:])))
        return UNKNOWN

    def run_as_any(self, call: Call) -> None:
        """A command whose name nobody knows may be `rm`: with a recursive option, it is judged as if it were."""
        if not any(_RECURSIVE.match(word) for word in call.argv[1:]):
            return
        self.calls.append(_with(call, ("rm", *call.argv[1:]), ("an unknown command",)))

    def _file_as_command(self, call: Call, word: str) -> str | None:
        if "/" not in word and join(self.state.cwd, word) not in self.state.files:
            return None
        path = join(self.state.cwd, word)
        content = self.state.files.get(path or "")
        if content is None or ("/" not in word and not content.startswith(LINK)):
            return None
        if content.startswith(LINK):
            target = content[1:]
            return None if target == word else self.run(_with(call, (target, *call.argv[1:])))
        return self._within(word, lambda: self._content(content, "sh", call.argv[1:]))

    def follow_variable(self, name: str, value: str) -> None:
        """Follows what a variable's value makes other programs run."""
        for one in consequences(name, value):
            self._inner(one, Call((name,), self.state.cwd, self.trail))

    def prompt_expanded(self, text: str) -> str:
        """A value expanded once more, as `@P` does."""
        raise NotImplementedError

    def _known(self, name: str, call: Call) -> str:
        if name in _ARITHMETIC:
            for word in call.argv[1:]:
                if "[$(" in word or "[`" in word:
                    self.prompt_expanded(word)
        effect = EFFECTS.get(name)
        if effect is not None:
            effect(call, self.state)
            if name in _DECLARES:
                for word in call.argv[1:]:
                    variable, equals, value = word.partition("=")
                    if equals and is_followed(variable):
                        self.follow_variable(variable, value)
        inners = self._inners(name, call)
        output: str | None = None
        for inner in inners or ():
            output = self._inner(inner, call)
        if (
            output is None
            or (name not in _INHERIT and not inners)
            or (name not in _INHERIT and name in LAUNCHERS and name != "eval")
        ):
            return printed(name, call, self.state)
        return output

    def _inners(self, name: str, call: Call) -> list[Inner] | None:
        wrapped = unwrapped(name, call)
        if wrapped is not None:
            return wrapped
        if name in shells.SHELLS:
            return shells.shell(name, call)
        launcher = LAUNCHERS.get(name)
        if launcher is not None:
            return launcher(call)
        return interpreters.given(name, call)

    def _inner(self, inner: Inner, call: Call) -> str:
        self.meter.step()
        return self._within(inner.label, lambda: self._inner_here(inner, call))

    def _inner_here(self, inner: Inner, call: Call) -> str:
        kind, value = inner.kind, inner.value
        stdin = call.stdin if inner.stdin is None else inner.stdin
        if kind == "argv" and isinstance(value, tuple):
            cwd = join(self.state.cwd, inner.cwd) if inner.cwd else self.state.cwd
            nested = Call(value, cwd, self.trail, (), stdin, call.assignments, call.background)
            return self.run(nested)
        text = value if isinstance(value, str) else " ".join(value)
        if kind == "prompt":
            return self.prompt_expanded(text)
        if kind == "variable":
            variable, _, value_text = text.partition("=")
            if is_followed(variable):
                self.follow_variable(variable, value_text)
            return ""
        if kind == "bomb":
            self.find("fork_bomb", text)
            return ""
        if kind == "file":
            path = join(self.state.cwd, text)
            if path in ("/dev/stdin", "/proc/self/fd/0", "/dev/fd/0") and call.stdin is not None:
                return self._content(call.stdin, inner.language, inner.params)
            content = self.state.files.get(path or "")
            if content is None:
                if text == SELF and self.forking:
                    self.find("fork_bomb", "a script that starts itself in the background or in a pipeline")
                return UNKNOWN
            return self._content(content, inner.language, inner.params)
        if kind in ("code", "data"):
            return self._code(text, inner.language, known_only=kind == "data")
        state = self.state
        before, state.params = (state.params, state.zero), inner.params
        state.zero = inner.zero or state.zero
        try:
            return self.script(text, inner.params, isolated=not inner.label.startswith(("eval", "trap", "source")))
        finally:
            state.params, state.zero = before

    def _content(self, content: str, language: str, params: tuple[str, ...]) -> str:
        if content.startswith(LINK):
            return UNKNOWN
        shebang = re.match(r"#!\s*(?:/\S*/)?(?:env\s+(?:-S\s+)?)?(\w+)", content)
        program = shebang.group(1) if shebang and language == "sh" else ""
        row = interpreters.interpreter(program)
        if row is not None:
            language = INTERPRETERS[row][0]
        if language != "sh":
            return self._code(content, language)
        outside, self.state.params = self.state.params, params
        try:
            return self.script(content, params)
        finally:
            self.state.params = outside

    def _code(self, text: str, language: str, *, known_only: bool = False) -> str:
        if marks.only_marks(text) and not known_only:
            self._opaque(text)
            return UNKNOWN
        self.meter.read(len(text))
        for inner in code.inside(language, text, self.trail[-1] if self.trail else language):
            self._inner_here(inner, Call(("",), self.state.cwd, self.trail))
        return UNKNOWN

    def script(self, text: str, params: tuple[str, ...], *, isolated: bool = True) -> str:
        """Walks a text that a shell is given; a new shell keeps its changes to itself."""
        if marks.only_marks(text):
            self._opaque(text)
            return UNKNOWN
        for mark in FOREIGN:
            if re.search(rf"(?:^|[\n;&|(])\s*{mark}", text):
                self.find("foreign_code", marks.plain(text[:60]))
        text = marks.literal_globs(text)
        if not isolated:
            return self.program(text)
        outside, self.state = self.state, self.state.copy()
        self.state.files = outside.files
        try:
            return self.program(text)
        finally:
            self.state = outside

    def _opaque(self, text: str) -> None:
        if not text.strip(marks.FILE + " \t\n"):
            return
        if DOWNLOAD in text or DECODED in text:
            self.find("foreign_code", marks.plain(text.strip()))
        elif text.strip() == SELF:
            if self.forking:
                self.find("fork_bomb", "a script that starts itself in the background or in a pipeline")
        elif UNKNOWN in text or LISTED in text or marks.FILE in text:
            self.find("unknown_code", marks.plain(text.strip()))
        elif UNSET in text:
            self.find("unset_code", marks.plain(text.strip()))

    def _within(self, label: str, act: object) -> str:
        before = self.trail
        self.trail = (*before, label) if not before or before[-1] != label else before
        if len(before) > _MAX_TRAIL:
            raise TooComplex("it nests too deep")
        try:
            return str(act())  # type: ignore[operator]
        finally:
            self.trail = before


def _may_be_program(word: str) -> bool:
    """Whether a glob looks among the system's programs rather than in some directory of the workspace."""
    directory, slash, _ = word.rpartition("/")
    return not slash or (directory.startswith("/") and (marks.has_glob(directory) or directory.endswith("bin")))


def _with(call: Call, argv: tuple[str, ...], more: tuple[str, ...] = ()) -> Call:
    return Call(argv, call.cwd, call.trail + more, call.redirects, call.stdin, call.assignments, call.background)


@functools.lru_cache(maxsize=256)
def _matching(pattern: re.Pattern[str], names: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in sorted(names) if pattern.match(name))
