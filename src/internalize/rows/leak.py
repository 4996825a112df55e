"""Held-out knowledge: what no row may say, in any wording.

Invariant: `found` looks at tokens only, so it judges rows of every source alike, whoever built them and
whatever they claim about themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from internalize.language.template import Template
from internalize.rows.context import Knowledge
from internalize.rows.split import split

#: Shortest held-out statement that is searched for as a run of words; shorter ones occur in honest play.
LONG = 3

#: Forms whose answer is a whole statement; the answers of the others say nothing without their question.
STATEMENTS = ("declarative", "paraphrase")

#: Word that opens an observation. What the game shows is no statement: it is not searched for runs.
OBSERVATION = "pot"


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
                if row["form"] in STATEMENTS and len(row["answer"].split()) >= LONG:
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
        for user, reply in split(tokens, self._template):
            words = self._template.vocab.decode(user).split()
            shown = words.index(OBSERVATION) if OBSERVATION in words else len(user)
            for said in (user[:shown], reply):
                run = self._run(said)
                if run is not None:
                    return run
            answer = self._template.parse(reply).say
            question = " ".join(words[1:-1])
            if answer is not None and (question, answer) in self._answers:
                return self._answers[question, answer]
        return None

    def _run(self, tokens: Sequence[int]) -> str | None:
        """The first held-out statement that stands in `tokens` word for word."""
        for length in self._lengths:
            for start in range(len(tokens) - length + 1):
                run = self._runs.get(tuple(tokens[start : start + length]))
                if run is not None:
                    return run
        return None
