"""What row builders work from, and the book of what they left out.

Invariant: a builder never drops anything without saying so: every episode and every turn that does not
become a trained part of a row is counted under a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from internalize.files import read_jsonl
from internalize.games.protocol import Game
from internalize.harness.episode import Episode
from internalize.language.dialogue import Dialogue
from internalize.language.sayings import Sayings, load_sayings
from internalize.records import SftRow


@dataclass(frozen=True)
class Knowledge:
    """The knowledge set as rows see it."""

    prompt_facts: tuple[str, ...]
    """Verified fact tokens, `left@N`, one a subject."""
    held_out_facts: frozenset[str]
    """Those that no row may state."""
    recall: tuple[dict[str, Any], ...]
    """Rows of `recall.jsonl`: how each atom is asked for."""
    sayings: Sayings
    """How facts are said."""

    @classmethod
    def load(cls, folder: Path, facts: dict[str, Any]) -> Knowledge:
        """From the payload and the receipt facts of the knowledge stage."""
        return cls(
            tuple(facts["prompt_facts"]),
            frozenset(facts["held_out_facts"]),
            tuple(read_jsonl(folder / "recall.jsonl")),
            load_sayings(folder, facts),
        )

    @property
    def trained_facts(self) -> tuple[str, ...]:
        """Facts that rows may state."""
        return tuple(fact for fact in self.prompt_facts if fact not in self.held_out_facts)

    @property
    def places(self) -> dict[str, str]:
        """Subject -> place of every verified fact."""
        return {subject: place for subject, _, place in (f.partition("@") for f in self.prompt_facts)}

    def forms(self, form: str, wording: str | None = None) -> list[dict[str, Any]]:
        """Recall rows of one form that may be trained and that the vocabulary can say, in file order."""
        return [
            row
            for row in self.recall
            if row["form"] == form and wording in (None, row["wording"]) and row["expressible"] and not row["held_out"]
        ]


@dataclass(frozen=True)
class Start:
    """Where an episode began: enough to replay it."""

    level: int
    seed: int


@dataclass
class RowContext:
    """Inputs of a row build."""

    template: Dialogue
    game: Game
    knowledge: Knowledge
    episodes: Sequence[Episode] = ()
    """The harvest that the source names."""
    parent: Sequence[SftRow] = ()
    """The row set that the source is cut from."""
    starts: dict[str, Start] = field(default_factory=dict)
    """Start of every episode that a row may come from, by id."""
    max_context: int = 512
    """Most tokens of a row."""
    dropped_episodes: Counter[str] = field(default_factory=Counter)
    """Reason -> episodes (or questions, or parent rows) without a row."""
    dropped_turns: Counter[str] = field(default_factory=Counter)
    """Reason -> turns that stay in their row's history but are not trained."""

    def __post_init__(self) -> None:
        for episode in self.episodes:
            self.starts[episode.plan.id] = Start(episode.plan.level, episode.plan.seed)
