"""What a game offers to sessions, harnesses, knowledge tests and evals.

Invariant: a game is pure. `apply` and `idle` return a new state and never change the old one, `refuse` says
why an action must not reach `apply`, and everything is deterministic in (level, seed, rules of the game).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

Frame = tuple[tuple[int, ...], ...]


class Action(NamedTuple):
    """One move: a name and, for actions that need them, frame coordinates (x to the right, y down, from
    0)."""

    action: str
    x: int | None = None
    y: int | None = None


class ActionSpec(NamedTuple):
    """One entry of the list of actions that a player is offered."""

    action_type: str
    requires_coordinates: bool


class Advice(NamedTuple):
    """What a player who knows the true rules would do now. For evals and audits only, never shown to the
    model.

    `need` names the subjects the next step turns on (a region and, unless it is dry, a colour), `call` is the
    call word and `facts` are the fact tokens that lead from `need` to `call`.
    """

    need: tuple[str, ...]
    call: str
    facts: tuple[str, ...]


class State(Protocol):
    """The part of a game state that everybody may read; a state is an immutable, hashable tuple."""

    @property
    def level(self) -> int: ...
    @property
    def budget(self) -> int: ...
    @property
    def acts(self) -> int: ...
    @property
    def done(self) -> bool: ...
    @property
    def cleared(self) -> bool: ...
    @property
    def dead(self) -> bool: ...


class Game(Protocol):
    """A game with levels, discrete acts and an act budget per level. States passed in are the game's own."""

    @property
    def name(self) -> str: ...
    @property
    def levels(self) -> tuple[int, ...]: ...
    @property
    def training_levels(self) -> tuple[int, ...]: ...
    @property
    def hud_rows(self) -> frozenset[int]:
        """Frame rows that show counters only; changes there are no changes of the world."""

    def words(self) -> tuple[str, ...]:
        """Every word the game, its observations, facts, calls and questions use, in a fixed order."""

    def start(self, level: int, seed: int) -> Any:
        """First state of a level; UserError for an unknown level."""

    def refuse(self, state: Any, action: Action) -> str | None:
        """Why `action` is invalid in `state`, or None if `apply` accepts it."""

    def apply(self, state: Any, action: Action) -> Any:
        """State after an accepted action; ValueError for one that `refuse` objects to."""

    def idle(self, state: Any) -> Any:
        """State after an act of the budget was spent without a move (a look, an unusable reply)."""

    def legend(self) -> str:
        """How to read the screen, the goal and the names of the actions, in English; nothing about the hidden rules."""

    def observe(self, state: Any) -> str:
        """The text a player reads: words of `words()` only."""

    def frame(self, state: Any) -> Frame:
        """The screen as rows of small colour numbers."""

    def labels(self) -> Mapping[tuple[int, int], str]:
        """Short captions of frame cells (x, y) for pictures."""

    def actions(self, state: Any) -> list[ActionSpec]:
        """The actions on offer; empty once the state is done."""

    def call_words(self) -> Mapping[str, Action]:
        """Call words of the model's vocabulary and the action each stands for."""

    def progress(self, state: Any) -> float:
        """Share of the goal that is reached, 0 .. 1; 1 exactly if cleared."""

    def probes(self, state: Any) -> dict[str, Any]:
        """Named JSON values of the state for the tests of the knowledge language."""

    def plan(self, state: Any) -> list[Action]:
        """A shortest list of acts that clears the level under the true rules, budget aside. Tests and evals
        only."""

    def advice(self, state: Any) -> Advice:
        """The next step of a player who knows the true rules, all of it empty where nobody does. Evals and audits only;
        ValueError if done."""

    def place(self, state: Any, word: str) -> str | None:
        """The place that a call acts at, by the name that facts have for it; None if it acts at none."""
