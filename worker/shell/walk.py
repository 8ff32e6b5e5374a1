"""Follows a command line from top to bottom and lists every command it may run, at every level."""

from __future__ import annotations

import itertools
import re
from typing import Any

from worker.shell import expand
from worker.shell.commands import Commands, command_name
from worker.shell.limits import MAX_DEPTH, TooComplex
from worker.shell.marks import UNKNOWN
from worker.shell.nodes import Body, Compound, Function, Item, Pipeline, Simple, Token
from worker.shell.reader import Reader
from worker.shell.state import Call, State

_SPLIT_OPERATOR = re.compile(r"(?<!\\)([$<])\\\n(?=[<({'\"$\w])")
"""`$` and `<` that a continued line parts from what they belong to; bash joins them before it reads."""
_ENDLESS = frozenset({":", "true", "/bin/true"})
_PAUSES = frozenset({"sleep", "wait", "read", "break", "exit", "return", "inotifywait", "flock", "usleep"})
_MAX_LOOP_VALUES = 12


class Walker(Commands):
    """One walk over one command line. `calls` and `findings` are what came of it, `doubt` whether it read well."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.loops = 0
        self.starts: set[int] = set()
        self.processes = itertools.count(63, -1)
        self.uncalled: dict[str, tuple[Function, State]] = {}

    def line(self, text: str) -> None:
        """Walks a whole command line, then the functions it defines and never calls.

        Raises:
            TooComplex: a cap was reached.
        """
        self.starts = self._read(text)[1]
        if self.doubt:
            self._line_by_line(text)
        self.tolerant += 1
        for name, (function, state) in list(self.uncalled.items()):
            state.params = None
            self.state = state
            self.trail = (f"function {name}",)
            self.node(function.body, None)

    def _line_by_line(self, text: str) -> None:
        """After an error bash may go on with a later line, so each is taken by itself as well."""
        lines = text.split("\n")
        for number in range(1, len(lines)):
            if lines[number].strip():
                self.state.conditional += 1
                self._read("\n".join(lines[number : number + 1]))
                self.state.conditional -= 1

    def program(self, text: str) -> str:
        return self._read(text)[0]

    def _read(self, text: str) -> tuple[str, set[int]]:
        self.meter.read(len(text))
        if "\\\n" in text:
            text = _SPLIT_OPERATOR.sub(r"\1", text)
        reader = Reader(text, self.meter, self.depth)
        body = reader.program()
        self.doubt = self.doubt or reader.doubt
        return self.body(body, None), reader.starts

    def body(self, body: Body, stdin: str | None) -> str:
        """Walks a list; what it prints, as far as known."""
        return "".join([self._item(item, stdin) for item in body])

    def _item(self, item: Item, stdin: str | None) -> str:
        certain = item.op == ";" and not item.background
        self.state.conditional += not certain
        self.forking += item.background
        self.detached += item.background
        try:
            return self.node(item.node, stdin)
        finally:
            self.forking -= item.background
            self.detached -= item.background
            self.state.conditional -= not certain

    def node(self, node: Any, stdin: str | None) -> str:
        """Walks any node."""
        self.meter.step()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooComplex("it nests too deep")
        try:
            if isinstance(node, Simple):
                return self.simple(node, stdin)
            if isinstance(node, Pipeline):
                return self._pipeline(node, stdin)
            if isinstance(node, Compound):
                return self._redirected(node, stdin)
            if isinstance(node, Function):
                self.state.functions[node.name] = node
                self.uncalled[node.name] = (node, self.state.copy())
            return ""
        finally:
            self.depth -= 1

    def in_subshell(self, body: Body, stdin: str | None) -> str:
        """Walks a list whose changes stay in a process of its own; files it writes remain."""
        outside = self.state
        self.state = outside.copy()
        self.state.files = outside.files
        try:
            return self.body(body, stdin)
        finally:
            self.state = outside

    def _pipeline(self, node: Pipeline, stdin: str | None) -> str:
        self.forking += 1
        output = stdin
        try:
            for part in node.parts:
                output = self.in_subshell([Item(";", part, False)], output)
        finally:
            self.forking -= 1
        return output or ""

    def _redirected(self, node: Compound, stdin: str | None) -> str:
        if not node.redirects:
            return self._compound(node, stdin)
        redirects, stdin = self.redirected(node.redirects, stdin)
        if redirects:
            self.calls.append(Call((), self.state.cwd, self.trail, redirects))
        return self.written(redirects, self._compound(node, stdin))

    def _compound(self, node: Compound, stdin: str | None) -> str:
        kind = node.kind
        if kind == "group":
            return self.body(node.bodies[0], stdin)
        if kind == "subshell":
            return self.in_subshell(node.bodies[0], stdin)
        if kind in ("if", "case"):
            for word in node.words or []:
                expand.text(self, word)
            outputs = [self.body(condition, stdin) for condition in node.conditions]
            self.state.conditional += 1
            directory = self.state.cwd
            for body in node.bodies:
                self.state.cwd = directory
                outputs.append(self.body(body, stdin))
            self.state.conditional -= 1
            return "".join(outputs)
        if kind in ("test", "arith"):
            for word in node.words or []:
                found = expand.text(self, word)
                if "[$(" in found or "[`" in found:
                    self.prompt_expanded(found)
            return ""
        return self._loop(node, stdin)

    def _loop(self, node: Compound, stdin: str | None) -> str:
        state = self.state
        first = len(self.calls)
        values: list[str] = []
        if node.kind == "for":
            if node.words is None:
                values = list(state.params) if state.params is not None else [UNKNOWN]
            for word in node.words or []:
                values += expand.fields(self, word)
        else:
            for word in node.words or []:
                expand.text(self, word)
        self.loops += 1
        state.conditional += 1
        outputs: list[str] = []
        if node.kind == "for" and len(values) <= _MAX_LOOP_VALUES and self.loops <= 2:
            directory = state.cwd
            for value in values:
                state.cwd = directory
                state.assign(node.name, value, certain=True)
                outputs += [self.body(body, stdin) for body in node.bodies]
        else:
            if node.kind == "for":
                state.assign(node.name, *values, certain=True)
            for _ in range(2 if self.loops <= 2 else 1):
                before = dict(state.variables)
                outputs += [self.body(condition, stdin) for condition in node.conditions]
                outputs += [self.body(body, stdin) for body in node.bodies]
                if state.variables == before:
                    break
        state.conditional -= 1
        self.loops -= 1
        if self._endless(node):
            mine = self.calls[first:]
            level = self.detached
            if any(call.background > level for call in mine) and not any(
                command_name(call) in _PAUSES and call.background == level for call in mine
            ):
                self.find("fork_bomb", "an endless loop that starts processes in the background")
        return "".join(outputs)

    def _endless(self, node: Compound) -> bool:
        if node.kind == "cfor":
            text = "".join(str(token.value) for token in (node.words or [[]])[0] if isinstance(token, Token))
            return text.count(";") == 2 and not text.split(";")[1].strip(" 1")
        if node.kind == "for" or not node.conditions or len(node.conditions[0]) != 1:
            return False
        condition = node.conditions[0][0].node
        if isinstance(condition, Simple) and condition.words:
            words = condition.words
            if not isinstance(words[0], str):
                return False
            if node.kind == "until":
                return words[0] == "false"
            return words[0] in _ENDLESS or (words[0] in ("[", "test") and len(words) <= 3)
        return isinstance(condition, Compound) and condition.kind == "arith" and node.kind == "while"

    def substituted(self, body: Body) -> str:
        outer, self.outer = self.outer, self._varying()
        try:
            return self.in_subshell(body, None)
        finally:
            self.outer = outer

    def _varying(self) -> frozenset[str]:
        variables = self.state.variables
        return frozenset(name for name in variables if len(variables[name]) > 1) if variables else frozenset()

    def process_substituted(self, op: str, body: Body) -> str:
        path = f"/dev/fd/{next(self.processes)}"
        self.forking += 1
        output = self.in_subshell(body, UNKNOWN if op == ">" else None)
        self.forking -= 1
        self.state.files[path] = output or UNKNOWN
        return path

    def call_function(self, function: Function, call: Call) -> str:
        """Walks a function's body with the call's arguments; a call of itself in another process is a fork bomb."""
        self.uncalled.pop(function.name, None)
        entered = self.calling.get(id(function))
        if entered is not None:
            if self.forking > entered:
                self.find("fork_bomb", f"function {function.name} starts itself over and over")
            return UNKNOWN
        params, self.state.params = self.state.params, call.argv[1:]
        self.calling[id(function)] = self.forking
        try:
            return self.node(function.body, call.stdin)
        finally:
            del self.calling[id(function)]
            self.state.params = params


def walk(text: str, *, cwd: str, home: str) -> Walker:
    """Follows the command line; the result has `calls`, `findings` and `doubt`.

    Raises:
        TooComplex: a cap was reached; nothing can be said of the line.
    """
    walker = Walker(State(cwd=cwd, home=home))
    walker.line(text)
    return walker
