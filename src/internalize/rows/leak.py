"""Held-out knowledge: what no row may say, in any wording.

Invariant: `found` looks at tokens only, so it judges rows of every source alike, whoever built them and
whatever they claim about themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from internalize.language.template import Template
from internalize.rows.context import Knowledge
from internalize.rows.split import split

#: Shortest held-out answer that is searched for as a run of words; shorter ones occur in honest play.
LONG = 3


class Leaks:
    """The held-out facts and forms of a knowledge set in one vocabulary."""

    def __init__(self, knowledge: Knowledge, template: Template) -> None:
        vocab = template.vocab
        self._template = template
        self._facts = {vocab.id(fact): fact for fact in knowledge.held_out_facts if fact in vocab}
        self._runs: dict[tuple[int, ...], str] = {}
        self._answers: dict[tuple[str, str], str] = {}
        for row in knowledge.recall:
            if row["held_out"] and row["expressible"]:
                words = row["answer"].split()
                if len(words) >= LONG:
                    self._runs[tuple(vocab.encode(row["answer"]))] = row["answer"]
                self._answers[row["prompt"], row["answer"]] = f"{row['prompt']} -> {row['answer']}"
        # the same fact in the two other wordings, should the recall rows not have them
        for fact in knowledge.held_out_facts:
            subject, _, place = fact.partition("@")
            for text in (f"{subject} at {place}", f"at {place} is {subject}"):
                self._runs[tuple(vocab.encode(text))] = text
        self._lengths = sorted({len(run) for run in self._runs})

    def found(self, tokens: Sequence[int]) -> str | None:
        """The first held-out statement in a row, in words; None if there is none."""
        for token in tokens:
            if token in self._facts:
                return self._facts[token]
        for length in self._lengths:
            for start in range(len(tokens) - length + 1):
                run = self._runs.get(tuple(tokens[start : start + length]))
                if run is not None:
                    return run
        for user, reply in split(tokens, self._template):
            said = self._template.parse(reply).say
            asked = self._template.vocab.decode(user[1:-1])
            if said is not None and (asked, said) in self._answers:
                return self._answers[asked, said]
        return None
