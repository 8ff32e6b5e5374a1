"""A second reading of the line, by tree-sitter's bash grammar: commands it sees where the reader saw none.

The reader decides; the grammar misreads some valid lines (`r\\<newline>m`, `! { x; }`, `cat <<A; x`), so its trees
can't be what is judged. But where it sees a command that the reader took for text, one of them is wrong.
"""

from __future__ import annotations

import functools

import tree_sitter_bash
from tree_sitter import Language, Parser, Query, QueryCursor


@functools.cache
def _grammar() -> tuple[Parser, Query]:
    language = Language(tree_sitter_bash.language())
    return Parser(language), Query(language, "(command) @command")


def unseen(text: str, starts: set[int]) -> list[str]:
    """The commands of a tree without errors that begin where none of the reader's do, outermost first.

    Args:
        starts: where the reader's simple commands begin, in characters.
    """
    parser, query = _grammar()
    data = text.encode("utf-8", "replace")
    tree = parser.parse(data)
    if tree.root_node.has_error:
        return []
    found: list[str] = []
    end = -1
    nodes = QueryCursor(query).captures(tree.root_node).get("command", [])
    if len(nodes) > 2_000:
        return []
    ascii_only = len(data) == len(text)
    for node in sorted(nodes, key=lambda node: node.start_byte):
        at = node.start_byte if ascii_only else len(data[: node.start_byte].decode("utf-8", "replace"))
        if at in starts or node.start_byte < end:
            continue
        end = node.end_byte
        found.append(data[node.start_byte : end].decode("utf-8", "replace"))
    return found
