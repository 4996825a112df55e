"""What an adapter must know about one ARC game: where its counters are, which calls have names, what its screen says.

Invariant: a board reads frames; it never looks into the engine, so what it says a player can see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from internalize.games.protocol import Action, Advice, Game


class Board(Protocol):
    """The reading of one game's screen."""

    @property
    def name(self) -> str:
        """Name of the family of games that it reads; lexicons go by it."""

    @property
    def hud_rows(self) -> frozenset[int]:
        """Frame rows with counters only."""

    @property
    def training_levels(self) -> tuple[int, ...]:
        """Levels that are trained on."""

    def budget(self, level: int) -> int:
        """Acts that a player can spend in a level before the game ends it."""

    def call_words(self) -> Mapping[str, Action]:
        """Named calls, for knowledge tests."""

    def probes(self, frame: bytes) -> dict[str, Any]:
        """Named JSON values of a frame."""

    def progress(self, frame: bytes) -> float:
        """Share of the goal that is reached, 0 .. 1."""

    def misfits(self, game: Game) -> list[str]:
        """What of the board's figures the user's copy of the game does not show; empty where all fits."""

    def advice(self, frame: bytes) -> Advice:
        """The next step of a shortest way; raises as `plan` does."""

    def place(self, frame: bytes, word: str) -> str | None:
        """The place that a call acts at, by the name that facts have for it."""

    def plan(self, frame: bytes) -> list[str]:
        """Words of a shortest way to clear the level, if the board knows the rules; for tests and evals.

        Raises:
            ValueError: it knows none.
        """
