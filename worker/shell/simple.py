"""Reads simple commands: blanks, comments, assignments, redirections, heredocs."""

from __future__ import annotations

import re

from worker.shell.lexer import Lexer
from worker.shell.nodes import Assignment, Redirect, Simple, Token

_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_BLANK_START = frozenset(" \t\\#")
_REDIRECT_START = frozenset("<>&{0123456789")
_COMMENT = re.compile(r"#[^\n]*")
_REDIRECT = re.compile(r"(\d+|\{\w+\})?(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<(?!\()|>(?!\())")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\[(?:[^][\n]|\[[^]\n]*\])*\])?(\+?)=")
_DECLARE = frozenset({"export", "declare", "local", "typeset", "readonly"})


class SimpleReader(Lexer):
    """Simple commands; lists and compound commands are the reader's."""

    def blank(self) -> None:
        """Goes past blanks, continued lines and a comment."""
        char = self.text[self.at : self.at + 1]
        if char not in _BLANK_START:
            return
        found = _BLANK.match(self.text, self.at)
        if found:
            self.at = found.end()
        if self.text.startswith("#", self.at) and (self.at == 0 or self.text[self.at - 1] in " \t\n;&|()`"):
            comment = _COMMENT.match(self.text, self.at)
            self.at = comment.end() if comment else self.at

    def newlines(self) -> None:
        """Goes past blank lines too, and takes the bodies of heredocs on the way."""
        while True:
            self.blank()
            if not self.text.startswith("\n", self.at):
                return
            self.at += 1
            if self.pending:
                self._heredoc_bodies()

    def simple(self) -> Simple | None:
        """A simple command with its assignments and redirections, or None."""
        node = Simple(self.at)
        self.starts.add(self.at)
        declares = False
        while True:
            self.blank()
            redirect = self.redirect()
            if redirect is not None:
                node.redirects.append(redirect)
                continue
            if not node.words or declares:
                assignment = self._assignment()
                if assignment is not None:
                    node.assignments.append(assignment)
                    continue
            word = self.word()
            if word is None:
                break
            self.meter.step()
            node.words.append(word)
            declares = declares or (len(node.words) == 1 and isinstance(word, str) and word in _DECLARE)
        return node if node.words or node.assignments or node.redirects else None

    def _assignment(self) -> Assignment | None:
        found = _ASSIGN.match(self.text, self.at)
        if not found:
            return None
        name, subscript, append = found.groups()
        self.at = found.end()
        self.meter.step(2)
        node = Assignment(name, "", append=bool(append))
        if subscript:
            node.subscript = self.reread(subscript[1:-1])
        if self.text.startswith("(", self.at):
            self.at += 1
            node.array = []
            while self.at < len(self.text):
                self.newlines()
                word = self.word()
                if word is not None:
                    node.array.append(word)
                elif self.text.startswith(")", self.at):
                    self.at += 1
                    return node
                else:
                    self.doubt = True
                    self.at += 1
            return node
        node.value = self.word() or ""
        return node

    def redirect(self) -> Redirect | None:
        """The redirection that begins here, or None."""
        if self.text[self.at : self.at + 1] not in _REDIRECT_START:
            return None
        found = _REDIRECT.match(self.text, self.at)
        if not found:
            return None
        fd, op = found.groups()
        self.at = found.end()
        self.blank()
        begin = self.at
        word = self.word()
        if word is None:
            self.doubt = True
            word = ""
        node = Redirect(op, word, fd or "")
        if op in ("<<", "<<-"):
            raw = self.text[begin : self.at]
            delimiter = re.sub(r"\\(.)|['\"]|\$(?=['\"])", r"\1", raw, flags=re.DOTALL)
            node.literal = delimiter != raw
            node.target = ""
            self.pending.append((node, delimiter, op == "<<-", node.literal))
        return node

    def _heredoc_bodies(self) -> None:
        pending, self.pending = self.pending, []
        for node, delimiter, dedent, literal in pending:
            lines: list[str] = []
            while True:
                if self.at >= len(self.text):
                    break
                end = self.text.find("\n", self.at)
                end = end if end >= 0 else len(self.text)
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                line = line.lstrip("\t") if dedent else line
                if line == delimiter:
                    break
                lines.append(line + "\n")
            text = "".join(lines)
            node.target = [Token("q", text)] if literal or not re.search(r"[$`\\]", text) else self.reread(text)
