"""Simple commands on the walk: words expanded in every alternative, assignments, redirections."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from worker.shell import expand, marks
from worker.shell.environment import is_followed
from worker.shell.limits import MAX_ALTERNATIVES, TooComplex
from worker.shell.names import DANGEROUS
from worker.shell.nodes import Assignment, Body, Redirect, Simple, Token
from worker.shell.paths import join
from worker.shell.reader import Reader
from worker.shell.run import Runner
from worker.shell.state import Call, State


class Commands(Runner):
    """What the walk does with a simple command before it is run."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.outer: frozenset[str] = frozenset()

    def substituted(self, body: Body) -> str:
        """Walks a command substitution; what it prints."""
        raise NotImplementedError

    def process_substituted(self, op: str, body: Body) -> str:
        """Walks a process substitution; the path that stands for it."""
        raise NotImplementedError

    def simple(self, node: Simple, stdin: str | None) -> str:
        """Follows a simple command in every alternative of its variables."""
        state = self.state
        if not state.variables:
            return self._once(node, stdin)
        varied, choice = state.varied, state.choice
        state.varied, state.choice = set(), dict(choice)
        try:
            outputs = [self._once(node, stdin)]
            names = [name for name in state.varied if name not in self.outer and name not in choice]
            if names:
                ranges = [range(len(state.variables[name])) for name in names if name in state.variables]
                combinations: Iterable[tuple[int, ...]] = itertools.islice(itertools.product(*ranges), 1, None)
                if math.prod(len(numbers) for numbers in ranges) > MAX_ALTERNATIVES:
                    combinations = self._sampled(ranges)
                state.conditional += 1
                for combination in list(combinations):
                    state.choice = {**choice, **dict(zip(names, combination, strict=False))}
                    outputs.append(self._once(node, stdin))
                state.conditional -= 1
            varied |= state.varied - set(names)
            return "".join(outputs)
        finally:
            state.varied, state.choice = varied, choice

    def _sampled(self, ranges: list[range]) -> Iterable[tuple[int, ...]]:
        """Each value of each variable once; too little where something dangerous hangs on how they come together."""
        if self.calls and self.calls[-1].argv and command_name(self.calls[-1]) in DANGEROUS:
            raise TooComplex("its variables may have too many values together")
        for position, numbers in enumerate(ranges):
            for number in itertools.islice(numbers, 1, MAX_ALTERNATIVES):
                yield tuple(number if at == position else 0 for at in range(len(ranges)))

    def _once(self, node: Simple, stdin: str | None) -> str:
        argv: list[str] = []
        for word in node.words:
            if isinstance(word, str):
                argv.append(word)
            else:
                argv += expand.fields(self, word)
        redirects, stdin = self.redirected(node.redirects, stdin)
        values: dict[str, str] = {}
        if node.assignments:
            values = self._assign(node.assignments, bool(argv))
        if argv:
            call = Call(tuple(argv), self.state.cwd, self.trail, redirects, stdin, values, self.detached)
            output = self.run(call)
        else:
            output = ""
            if redirects:
                self.calls.append(Call((), self.state.cwd, self.trail, redirects, stdin, values))
        return self.written(redirects, output) if redirects else output

    def _assign(self, assignments: list[Assignment], only_for_command: bool) -> dict[str, str]:
        state = self.state
        values: dict[str, str] = {}
        for node in assignments:
            if node.array is not None:
                self._assign_array(node)
                continue
            value = expand.text(self, node.value)
            self.meter.read(4 * len(value))
            name = node.name
            if node.subscript is not None:
                name = f"{name}[{self.text_of(node.subscript).strip()}]"
            if node.append:
                before = state.value(name)
                if isinstance(before, tuple):
                    state.assign(name, (*before, value))
                    continue
                value = (before or "") + value
            values[name] = value
            if "[$(" in value or "[`" in value:
                self.prompt_expanded(value)
            if is_followed(name):
                self.follow_variable(name, value)
            if not only_for_command or name == "IFS":
                state.assign(name, value)
            elif name not in state.variables:
                state.variables[name] = (value,)
        return values

    def _assign_array(self, node: Assignment) -> None:
        items: list[str] = []
        for word in node.array or []:
            for item in expand.fields(self, word):
                items.append(item)
                plain = marks.literal_globs(item)
                if plain.startswith("[") and "]=" in plain:
                    key, _, value = plain[1:].partition("]=")
                    self.state.assign(f"{node.name}[{key}]", value)
                    items[-1] = value
        before = self.state.value(node.name) if node.append else ()
        older = before if isinstance(before, tuple) else (before,) if before else ()
        self.state.assign(node.name, (*older, *items))
        if is_followed(node.name):
            for item in items:
                self.follow_variable(node.name, item)

    def redirected(self, nodes: list[Redirect], stdin: str | None) -> tuple[tuple[tuple[str, str], ...], str | None]:
        """Redirections as (operator, target), and what standard input is after them."""
        found: list[tuple[str, str]] = []
        for node in nodes:
            target = expand.text(self, node.target)
            if node.op in ("<<", "<<-", "<<<"):
                given = target if node.op != "<<<" else target + "\n"
                if node.fd in ("", "0"):
                    stdin = given
                else:
                    self.state.files[f"/dev/fd/{node.fd}"] = given
            elif node.op == "<&" and target.isdigit() and target != "0":
                stdin = self.state.files.get(f"/dev/fd/{target}", stdin)
            elif node.op in ("<", "<>"):
                path = join(self.state.cwd, target)
                found.append((node.op, target))
                if node.fd in ("", "0"):
                    stdin = self._file_content(path)
                else:
                    self.state.files[f"/dev/fd/{node.fd}"] = self._file_content(path)
            elif not (node.op in (">&", "<&") and target.rstrip("-").isdigit()):
                found.append((node.op if node.fd in ("", "1") else "2" + node.op, target))
        return tuple(found), stdin

    def _file_content(self, path: str | None) -> str:
        if path == "/dev/null":
            return ""
        if path is not None and path.startswith(("/dev/tcp/", "/dev/udp/")):
            return marks.DOWNLOAD + "\n"
        return self.state.files.get(path or "", marks.FILE + "\n")

    def written(self, redirects: tuple[tuple[str, str], ...], output: str) -> str:
        """Notes what the output is written to; what is left of it."""
        for op, target in redirects:
            if op in (">", ">>", ">|", "&>", "&>>", ">&"):
                self.write_file(target, output, append=">>" in op)
                output = ""
        return output

    def write_file(self, target: str, content: str, *, append: bool = False) -> None:
        """Remembers what a file holds from here on."""
        path = join(self.state.cwd, target)
        if path is not None and not path.startswith("/dev/"):
            self.state.files[path] = (self.state.files.get(path, "") if append else "") + content

    def text_of(self, tokens: list[Token]) -> str:
        """Tokens expanded as inside double quotes."""
        return expand.text(self, tokens)

    def prompt_expanded(self, text: str) -> str:
        """A value expanded once more, as `@P` does."""
        self.meter.read(len(text))
        reader = Reader(text, self.meter, self.depth)
        return expand.text(self, reader.double_quoted())


def command_name(call: Call) -> str:
    """The last part of the command word."""
    return call.argv[0].rpartition("/")[2] if call.argv else ""
