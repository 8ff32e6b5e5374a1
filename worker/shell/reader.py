"""Reads a command line as bash does: one pass, recursive descent, never gives up.

What bash would refuse is read as far as it goes, with `doubt` set: every command that can be made out is still seen.
"""

from __future__ import annotations

import re
from typing import Any

from worker.shell.nodes import Body, Compound, Function, Item, Pipeline, Word
from worker.shell.simple import SimpleReader

_RESERVED_START = frozenset("iteflwusdc{}![")
_TIME_OPTION = re.compile(r"time[ \t]+-(?!p[ \t]|-)")
_EMPTY_PARENS = re.compile(r"\([ \t]*\)")
_NAMED_COPROC = re.compile(r"[A-Za-z_]\w*[ \t]+(?=[{(])")
_TEST_END = re.compile(r"\]\](?=[ \t\n;&|<>()]|$)")
_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|while|until|select|do|done|case|esac|in|function|time|coproc|\{|\}|!|\[\[)"
    r"(?=[ \t\n;&|<>()]|$)"
)
_FUNCTION = re.compile(r"([^ \t\n;&|<>()$'\"`\\{}=]+)[ \t]*\([ \t]*\)")
_SEPARATOR = re.compile(r"&&|\|\||;;&|;;|;&|[;&\n]")
_CLOSERS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})


class Reader(SimpleReader):
    """`Reader(text, meter).program()` gives the whole text as a list."""

    def program(self) -> Body:
        """All of the text; what closes nothing is stepped over."""
        body: Body = []
        while True:
            body += self.body()
            if self.at >= len(self.text):
                return body
            self.doubt = True
            stray = _RESERVED.match(self.text, self.at)
            self.at = stray.end() if stray else self.at + 1

    def inner(self, text: str) -> Body:
        self.meter.step(6)
        self.meter.read(len(text))
        other = Reader(text, self.meter, self.depth)
        other.deeper()
        body = other.program()
        self.doubt = self.doubt or other.doubt
        return body

    def body_until(self, closer: str) -> Body:
        body: Body = []
        while True:
            body += self.body()
            if self.at >= len(self.text):
                self.doubt = True
                return body
            if self.text[self.at] == closer:
                self.at += 1
                return body
            self.doubt = True
            stray = _RESERVED.match(self.text, self.at)
            self.at = stray.end() if stray else self.at + 1

    def reserved(self) -> str:
        """The reserved word here, not consumed, or nothing."""
        if self.text[self.at : self.at + 1] not in _RESERVED_START:
            return ""
        found = _RESERVED.match(self.text, self.at)
        return found.group() if found else ""

    def expect(self, word: str) -> bool:
        """Consumes the reserved word if it is next."""
        self.newlines()
        if self.reserved() == word:
            self.at += len(word)
            return True
        self.doubt = True
        return False

    def body(self) -> Body:
        """A list up to a closer, a `)`, a `;;` or the end; none of them consumed."""
        self.deeper()
        body: Body = []
        op = ";"
        first = 0
        while True:
            self.newlines()
            if self.at >= len(self.text) or self.text[self.at] == ")":
                break
            if self.reserved() in _CLOSERS:
                break
            before = self.at
            node = self.pipeline()
            if node is not None:
                body.append(Item(op, node, False))
            self.blank()
            found = _SEPARATOR.match(self.text, self.at)
            separator = found.group() if found else ""
            if node is None and separator in ("&", "&&", "||", ";"):
                self.doubt = True
            if separator.startswith(";") and separator != ";":
                break
            if not separator:
                if self.at == before:
                    if self.text[self.at] == ")":
                        break
                    self.doubt = True
                    self.at += 1
                if self.at < len(self.text) and self.text[self.at] != ")" and self.reserved() not in _CLOSERS:
                    self.doubt = True
                op, first = ";", len(body)
                continue
            if separator != "\n":
                self.at += len(separator)
            if separator == "&":
                body[first:] = [item._replace(background=True) for item in body[first:]]
            op = separator if separator in ("&&", "||") else ";"
            if op == ";":
                first = len(body)
        self.depth -= 1
        return body

    def pipeline(self) -> Any:
        """One pipeline; `!` and `time` in front change nothing of what runs."""
        while True:
            self.blank()
            word = self.reserved()
            if word == "!":
                self.at += 1
            elif word == "time" and not _TIME_OPTION.match(self.text, self.at):
                self.at += 4
                self.blank()
                if self.text.startswith(("-p ", "-p\t"), self.at):
                    self.at += 3
            else:
                break
        parts = [self.command()]
        while True:
            self.blank()
            if not self.text.startswith("|", self.at) or self.text.startswith("||", self.at):
                break
            self.at += 2 if self.text.startswith("|&", self.at) else 1
            self.newlines()
            parts.append(self.command())
        if len(parts) == 1:
            return parts[0]
        return Pipeline([part for part in parts if part is not None])

    def command(self) -> Any:
        """A simple command, a compound one or a function; None when nothing can be made out."""
        self.meter.step(2)
        self.blank()
        text, at = self.text, self.at
        if at >= len(text):
            return None
        if text[at] == "(":
            return self._paren()
        word = self.reserved()
        if word and word in _COMPOUND:
            self.at += len(word)
            return _COMPOUND[word](self)
        found = _FUNCTION.match(text, at) if self.parens else None
        if found:
            self.at = found.end()
            return self._function_body(found.group(1))
        return self.simple()

    def _paren(self) -> Compound:
        if self.text.startswith("((", self.at):
            arithmetic = self.arithmetic(self.at + 2)
            if arithmetic is not None:
                return self._redirected(Compound("arith", words=[self.reread(arithmetic)]))
        self.at += 1
        return self._redirected(Compound("subshell", bodies=[self._nested(")")]))

    def _nested(self, closer: str) -> Body:
        self.deeper()
        body = self.body()
        if self.text.startswith(closer, self.at):
            self.at += len(closer)
        else:
            self.doubt = True
        self.depth -= 1
        return body

    def _redirected(self, compound: Compound) -> Compound:
        while True:
            self.blank()
            redirect = self.redirect()
            if redirect is None:
                return compound
            compound.redirects.append(redirect)

    def _group(self) -> Compound:
        return self._redirected(Compound("group", bodies=[self._nested("}")]))

    def _if(self) -> Compound:
        node = Compound("if")
        node.conditions.append(self.body())
        while True:
            self.expect("then")
            node.bodies.append(self.body())
            self.newlines()
            word = self.reserved()
            if word == "elif":
                self.at += 4
                node.conditions.append(self.body())
                continue
            if word == "else":
                self.at += 4
                node.bodies.append(self.body())
            self.expect("fi")
            return self._redirected(node)

    def _while(self) -> Compound:
        kind = "until" if self.text.startswith("until", self.at - 5) else "while"
        node = Compound(kind, conditions=[self.body()])
        return self._do(node)

    def _do(self, node: Compound) -> Compound:
        self.newlines()
        if self.reserved() == "{":
            self.at += 1
            node.bodies.append(self._nested("}"))
            return self._redirected(node)
        self.expect("do")
        node.bodies.append(self.body())
        self.expect("done")
        return self._redirected(node)

    def _for(self) -> Compound:
        self.blank()
        if self.text.startswith("((", self.at):
            arithmetic = self.arithmetic(self.at + 2)
            node = Compound("cfor", words=[self.reread(arithmetic or "")])
        else:
            name = self.word()
            node = Compound("for", name=name if isinstance(name, str) else "")
            self.newlines()
            if self.reserved() == "in":
                self.at += 2
                node.words = self._words()
        self.blank()
        if self.text.startswith(";", self.at):
            self.at += 1
        return self._do(node)

    def _words(self) -> list[Word]:
        words: list[Word] = []
        while True:
            self.blank()
            word = self.word()
            if word is None:
                return words
            words.append(word)

    def _case(self) -> Compound:
        self.blank()
        node = Compound("case", words=[self.word() or ""])
        self.expect("in")
        while True:
            self.newlines()
            if self.reserved() == "esac" or self.at >= len(self.text):
                break
            if self.text.startswith("(", self.at):
                self.at += 1
            while self.at < len(self.text) and self.text[self.at] not in ")\n":
                before = self.at
                self.blank()
                pattern = self.word()
                if isinstance(pattern, list):
                    node.words = [*(node.words or []), pattern]
                if self.at == before:
                    if self.text[self.at] == "(":
                        self.skip_parens()
                    else:
                        self.at += 1
            self.at += 1
            node.bodies.append(self.body())
            found = _SEPARATOR.match(self.text, self.at)
            if found:
                self.at = found.end()
            elif self.reserved() != "esac":
                break
        self.expect("esac")
        return self._redirected(node)

    def _function(self) -> Function:
        self.blank()
        word = self.word()
        self.blank()
        empty = _EMPTY_PARENS.match(self.text, self.at)
        if empty:
            self.at = empty.end()
        return self._function_body(word if isinstance(word, str) else "".join(str(t.value) for t in word or []))

    def _function_body(self, name: str) -> Function:
        self.deeper()
        self.newlines()
        body = self.command()
        self.depth -= 1
        return Function(name, body)

    def _coproc(self) -> Any:
        self.blank()
        named = _NAMED_COPROC.match(self.text, self.at)
        if named:
            self.at = named.end()
        return self.command()

    def _test(self) -> Compound:
        node = Compound("test", words=[])
        while self.at < len(self.text):
            self.newlines()
            if _TEST_END.match(self.text, self.at):
                self.at += 2
                return self._redirected(node)
            word = self.word()
            if word is not None:
                node.words = [*(node.words or []), word]
            else:
                self.at += 1
        self.doubt = True
        return node


_COMPOUND = {
    "{": Reader._group,
    "if": Reader._if,
    "while": Reader._while,
    "until": Reader._while,
    "for": Reader._for,
    "select": Reader._for,
    "case": Reader._case,
    "function": Reader._function,
    "coproc": Reader._coproc,
    "[[": Reader._test,
}
