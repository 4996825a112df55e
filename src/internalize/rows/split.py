"""Rows cut back into user turns and replies, by their special tokens alone.

Invariant: the pieces joined are the row, whatever the row holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from internalize.language import markup
from internalize.language.template import Template


def split(tokens: Sequence[int], template: Template) -> list[tuple[list[int], list[int]]]:
    """(user turn with `<u>` and `<a>`, reply) pairs;
    what stands before the first `<u>` is a user turn of its own."""
    user, assistant = template.vocab.id(markup.USER), template.vocab.id(markup.ASSISTANT)
    pairs: list[tuple[list[int], list[int]]] = []
    asking = True
    for token in tokens:
        if token == user or not pairs:
            pairs.append(([], []))
            asking = True
        pairs[-1][0 if asking else 1].append(token)
        if token == assistant:
            asking = False
    return pairs
