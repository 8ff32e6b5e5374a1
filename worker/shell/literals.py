"""String literals of most languages."""

from __future__ import annotations

import re

STRING = (
    r"""[rRbBfFuU]{0,2}(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|"""
    r"""\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)"""
)


def literal(token: str) -> str:
    """The text a string literal stands for."""
    body = token.lstrip("rRbBfFuU")
    quote = body[:3] if body[:3] in ("'''", '"""') else body[:1]
    text = body[len(quote) : -len(quote)]
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m.group(1), m.group(1)), text, flags=re.DOTALL)
