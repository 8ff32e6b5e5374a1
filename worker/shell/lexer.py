"""Reads words: quotes, expansions, substitutions. The grammar around them is in reader.py."""

from __future__ import annotations

import re

from worker.shell import escapes
from worker.shell.limits import MAX_DEPTH, Meter, TooComplex
from worker.shell.marks import STAR
from worker.shell.nodes import Body, Param, Redirect, Token, Word

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:@%+,=^\-]+(?=[ \t\n;&|<>()]|$)")
_CHUNK = re.compile(r"[^ \t\n;&|<>()'\"\\$`]+")
_IN_DOUBLE = re.compile(r'[^"\\$`]+')
_IN_BRACES = re.compile(r"[^}'\"\\$`]+")
_IN_QUOTED_BRACES = re.compile(r"[^}\"\\$`]+")
_IN_HEREDOC = re.compile(r"[^\\$`]+")
_IN_ARITHMETIC = re.compile(r"[^()\\$`'\"]+")
_PARAM = re.compile(r"([!#]?)([A-Za-z_]\w*|\d+|[@*#?$!_-])")
_OPERATOR = re.compile(r":[-=+?]|[-=+?]|##?|%%?|//?|\^\^?|,,?|~~?|@|:|")
_BARE = frozenset({"[", "]", "!", "{}", "{", "}"})
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")


class Lexer:
    """A position in a text. `doubt` says that something was not read as bash would."""

    def __init__(self, text: str, meter: Meter, depth: int = 0) -> None:
        self.text = text
        self.at = 0
        self.meter = meter
        self.depth = depth
        self.doubt = False
        self.starts: set[int] = set()
        self.parens = "(" in text
        self.pending: list[tuple[Redirect, str, bool, bool]] = []

    def body_until(self, closer: str) -> Body:
        """The list up to the closing `)`; the grammar is the subclass's."""
        raise NotImplementedError

    def inner(self, text: str) -> Body:
        """The list another text holds (of backquotes, whose backslashes are already gone)."""
        raise NotImplementedError

    def deeper(self) -> None:
        """Counts one level of nesting."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooComplex("it nests too deep")

    def word(self) -> Word | None:
        """The word that begins here, or None when none does."""
        found = _PLAIN_WORD.match(self.text, self.at)
        if found:
            self.at = found.end()
            return found.group()
        tokens: list[Token] = []
        text = self.text
        begin = self.at
        while self.at < len(text):
            char = text[self.at]
            if char in " \t\n;&|)":
                break
            if char in "<>":
                if text[self.at + 1 : self.at + 2] != "(" or self.at != begin:
                    break
                self.at += 2
                tokens.append(Token("r", (char, self._substitution())))
            elif char == "(":
                if self.at == begin or text[self.at - 1] not in "@!+*?":
                    break
                self.skip_parens()
                tokens.append(Token("u", STAR))
            else:
                self._piece(tokens, _CHUNK, False)
        if self.at == begin:
            return None
        if len(tokens) == 1 and tokens[0].kind == "u" and tokens[0].value in _BARE:
            return str(tokens[0].value)
        return tokens

    def _piece(self, tokens: list[Token], chunk: re.Pattern[str], quoted: bool) -> None:
        text, at = self.text, self.at
        self.meter.step()
        found = chunk.match(text, at)
        if found:
            self.at = found.end()
            tokens.append(Token("q" if quoted else "u", found.group()))
            return
        char = text[at]
        if char == "'" and not quoted:
            end = text.find("'", at + 1)
            if end < 0:
                self.doubt, end = True, len(text)
            tokens.append(Token("q", text[at + 1 : end]))
            self.at = end + 1
        elif char == '"' and not quoted:
            self.at = at + 1
            self._until('"', _IN_DOUBLE, tokens)
        elif char == "\\":
            self._backslash(tokens, quoted)
        elif char == "$":
            self._dollar(tokens, quoted)
        elif char == "`":
            self._backquotes(tokens, quoted)
        else:
            self.at = at + 1
            tokens.append(Token("q" if quoted else "u", char))

    def _backslash(self, tokens: list[Token], quoted: bool) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if following == "\n":
            return
        if not following:
            tokens.append(Token("q", "\\"))
        elif quoted and following not in '$`"\\':
            tokens.append(Token("q", "\\" + following))
        else:
            tokens.append(Token("q", following))

    def _until(self, closer: str, chunk: re.Pattern[str], tokens: list[Token]) -> None:
        quoted = closer != "}"
        before = len(tokens)
        while self.at < len(self.text):
            if self.text[self.at] == closer and closer:
                self.at += 1
                break
            self._piece(tokens, chunk, quoted)
        else:
            self.doubt = self.doubt or bool(closer)
        if len(tokens) == before:
            tokens.append(Token("q", ""))

    def double_quoted(self, chunk: re.Pattern[str] = _IN_HEREDOC) -> list[Token]:
        """The rest of the text as the inside of a heredoc: no quotes, but expansions."""
        tokens: list[Token] = []
        while self.at < len(self.text):
            self._piece(tokens, chunk, True)
        return tokens

    def _dollar(self, tokens: list[Token], quoted: bool) -> None:
        text, at = self.text, self.at
        following = text[at + 1 : at + 2]
        if following == "(":
            self._dollar_paren(tokens, quoted)
        elif following == "{":
            self.at = at + 2
            tokens.append(Token("p", self._braced(quoted), quoted))
        elif following == "'" and not quoted:
            end = escapes.close_single(text, at + 2)
            self.doubt = self.doubt or end == len(text)
            tokens.append(Token("q", escapes.decode(text[at + 2 : end])))
            self.at = end + 1
        elif following == '"' and not quoted:
            self.at = at + 2
            self._until('"', _IN_DOUBLE, tokens)
        elif following == "[":
            end = text.find("]", at)
            end = end if end >= 0 else len(text)
            tokens.append(Token("a", self.reread(text[at + 2 : end]), quoted))
            self.at = end + 1
        else:
            found = _NAME.match(text, at + 1) if following else None
            if found:
                self.at = found.end()
                tokens.append(Token("p", Param(found.group(), bare=True), quoted))
            else:
                self.at = at + 1
                tokens.append(Token("q", "$"))

    def _dollar_paren(self, tokens: list[Token], quoted: bool) -> None:
        if self.text.startswith("$((", self.at):
            arithmetic = self.arithmetic(self.at + 3)
            if arithmetic is not None:
                tokens.append(Token("a", self.reread(arithmetic), quoted))
                return
        self.at += 2
        tokens.append(Token("s", self._substitution(), quoted))

    def _substitution(self) -> Body:
        self.deeper()
        pending, self.pending = self.pending, []
        body = self.body_until(")")
        # A heredoc still open at the `)` takes its body after the line that holds the substitution.
        self.pending = pending + self.pending
        self.depth -= 1
        return body

    def _backquotes(self, tokens: list[Token], quoted: bool) -> None:
        text, at = self.text, self.at + 1
        while at < len(text) and text[at] != "`":
            at += 2 if text[at] == "\\" else 1
        if at >= len(text):
            self.doubt = True
        inner = re.sub(r'\\([$`\\"])' if quoted else r"\\([$`\\])", r"\1", text[self.at + 1 : at])
        self.at = at + 1
        tokens.append(Token("s", self.inner(inner), quoted))

    def reread(self, text: str) -> list[Token]:
        """Another text as the inside of double quotes: arithmetic, subscripts, `@P`."""
        self.meter.step(3)
        self.meter.read(len(text))
        other = type(self)(text, self.meter, self.depth)
        other.deeper()
        return other.double_quoted()

    def arithmetic(self, start: int) -> str | None:
        """The text between `((` that ended at `start` and its `))`, which is consumed; None if it is no arithmetic."""
        before = self.at
        self.at = start
        end = self._balanced(start)
        if end < 0 or self.text[end + 1 : end + 2] != ")":
            self.at = before
            return None
        self.at = end + 2
        return self.text[start:end]

    def skip_parens(self) -> None:
        """Goes past a balanced `(...)`."""
        end = self._balanced(self.at + 1)
        if end < 0:
            self.doubt = True
        self.at = end + 1 if end >= 0 else len(self.text)

    def _balanced(self, at: int) -> int:
        text, level = self.text, 1
        self.meter.step(2)
        begin = at
        while at < len(text):
            self.meter.step()
            found = _IN_ARITHMETIC.match(text, at)
            if found:
                at = found.end()
                continue
            char = text[at]
            if char == "(":
                level += 1
            elif char == ")":
                level -= 1
                if not level:
                    self.meter.read(at - begin)
                    return at
            elif char == "\\":
                at += 1
            elif char in "'\"":
                closing = text.find(char, at + 1)
                at = closing if closing >= 0 else at
            at += 1
        self.meter.read(len(text) - begin)
        return -1

    def _braced(self, quoted: bool) -> Param:
        self.deeper()
        found = _PARAM.match(self.text, self.at)
        if not found:
            self.doubt = True
            argument: list[Token] = []
            self._until("}", _IN_BRACES, argument)
            self.depth -= 1
            return Param("", op="?", argument=argument)
        prefix, name = found.groups()
        self.at = found.end()
        param = Param(name, prefix=prefix)
        if self.text.startswith("[", self.at):
            end = self.text.find("]", self.at)
            nested = self.text.find("[", self.at + 1, end)
            if nested >= 0:
                end = self.text.find("]", end + 1)
            end = end if end >= 0 else len(self.text)
            param.subscript = self.reread(self.text[self.at + 1 : end])
            self.at = end + 1
        operator = _OPERATOR.match(self.text, self.at)
        param.op = operator.group() if operator else ""
        self.at += len(param.op)
        # Inside double quotes a single quote is a plain character here, but a quote in a pattern.
        literal = quoted and param.op[-1:] in ("-", "=", "+", "?", "")
        self._until("}", _IN_QUOTED_BRACES if literal else _IN_BRACES, param.argument)
        self.depth -= 1
        return param
