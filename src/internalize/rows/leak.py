"""Held-out knowledge: what no row may say, in any wording.

Invariant: `found` looks at a row's text only, so it judges rows of every source alike, whoever built them and
whatever they claim about themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from internalize.language.dialogue import Dialogue
from internalize.rows.context import Knowledge

#: Shortest held-out statement that is searched for as a run of words; shorter ones occur in honest play.
LONG = 3

#: Forms whose answer is a whole statement; the answers of the others say nothing without their question.
STATEMENTS = ("declarative", "paraphrase")

#: Word that opens an observation of the closed vocabulary. What the game shows is no statement: it is not searched for
#: runs. (Statements of an open vocabulary are sentences, which no screen shows.)
OBSERVATION = "pot"


class Leaks:
    """The held-out facts and forms of a knowledge set, in one model's language."""

    def __init__(self, knowledge: Knowledge, template: Dialogue) -> None:
        self._template = template
        self._sayings = knowledge.sayings
        self._facts = knowledge.held_out_facts
        runs: set[str] = set()
        self._answers: dict[tuple[str, str], str] = {}
        for row in knowledge.recall:
            if row["held_out"] and row["expressible"]:
                if row["form"] in STATEMENTS and len(row["answer"].split()) >= LONG:
                    runs.add(row["answer"])
                self._answers[row["prompt"], row["answer"]] = f"{row['prompt']} -> {row['answer']}"
        # the same fact in the two other wordings, should the recall rows not have them
        for fact in knowledge.held_out_facts:
            subject, _, place = fact.partition("@")
            runs |= {f"{subject} at {place}", f"at {place} is {subject}"}
        longest = sorted(runs, key=lambda run: (-len(run), run))
        self._runs = re.compile(r"(?<!\S)(?:" + "|".join(map(re.escape, longest)) + r")(?!\S)") if runs else None

    def found(self, tokens: Sequence[int]) -> str | None:
        """The first held-out statement in a row, in words; None if there is none."""
        if not self._facts and not self._answers:
            return None
        stated = self._sayings.stated(self._template.decode(tokens))
        fact = next((fact for fact in stated if fact in self._facts), None)
        if fact is not None:
            return self._sayings.say(fact)
        for user, reply in self._template.split(tokens):
            shown = self._template.decode(user)
            words = shown.split()
            if OBSERVATION in words:
                shown = " ".join(words[: words.index(OBSERVATION)])
            for said in (shown, self._template.decode(reply)):
                run = self._runs.search(" ".join(said.split())) if self._runs is not None else None
                if run is not None:
                    return run[0]
            answer = self._template.parse(reply).say
            question = self._template.read_user(user)[0]
            if answer is not None and (question, answer) in self._answers:
                return self._answers[question, answer]
        return None
