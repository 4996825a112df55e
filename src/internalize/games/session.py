"""One episode behind the tools `look`, `act` and `status`.

Invariant: a call that the game refuses never reaches it: the state stays the very same object, the call is
counted in `invalid` and its row says why. Every other call writes one journal row of DESIGN section 4.

What costs an act of the budget: an accepted `act`; a `look`, so that an endless look loop ends; a reply
without a usable call (`unusable`). `status` and refused calls cost none. A `look` and an accepted act that
changes no cell outside the HUD are no-ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from internalize.errors import UserError
from internalize.games.diff import Diff, diff
from internalize.games.protocol import Action, Game
from internalize.games.shaping import Outcome
from internalize.records import ActionSpecRow, JournalRow, ToolArguments, ToolResult

TOOLS = ("look", "act", "status")
_UNCHANGED = Diff(0, {}, [], 0)
_KEYS = frozenset(("action", "x", "y"))


class GameSession:
    """Plays one level. `invalid`, `noops` and `acts` count as in `Outcome`; `text_ended` marks an end by text
    answer."""

    def __init__(self, game: Game, level: int, seed: int, max_cells: int = 64) -> None:
        self.game = game
        self.max_cells = max_cells
        self.state: Any = game.start(level, seed)
        self.progress0 = game.progress(self.state)
        self.invalid = 0
        self.noops = 0
        self.text_ended = False
        self._frame = game.frame(self.state)

    @property
    def acts(self) -> int:
        """Acts of the budget spent so far."""
        return int(self.state.acts)

    @property
    def done(self) -> bool:
        """Cleared, dead, out of budget or ended by a text answer."""
        return bool(self.state.done) or self.text_ended

    def observe(self) -> str:
        """The observation of the current state, free of charge: the text of the first prompt."""
        return self.game.observe(self.state)

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> JournalRow:
        """Carry out one tool call and return its journal row.

        A refused call's row has the reason as its `observation`; arguments that don't fit the record become
        null there. Raises UserError for a tool that doesn't exist.
        """
        given = dict(arguments or {})
        if tool == "look":
            return self._look(given)
        if tool == "status":
            return self._status(given)
        if tool == "act":
            return self._act(given)
        self.invalid += 1
        raise UserError("unknown tool", got=repr(tool), expected=" ".join(TOOLS))

    def unusable(self) -> None:
        """Charge a reply that holds no usable call: one act, counted as invalid. No row: no tool was
        called."""
        self._spend()
        self.invalid += 1

    def text_end(self) -> None:
        """End the episode by a text answer."""
        if self.done:
            raise ValueError("the episode is over")
        self.text_ended = True

    def outcome(self) -> Outcome:
        """How the episode stands now."""
        state = self.state
        return Outcome(
            cleared=bool(state.cleared),
            dead=bool(state.dead),
            text_end=self.text_ended,
            acts=self.acts,
            noops=self.noops,
            invalid=self.invalid,
            budget=int(state.budget),
            progress0=self.progress0,
            progress=self.game.progress(state),
        )

    def _look(self, given: dict[str, Any]) -> JournalRow:
        reason = "the episode is over" if self.done else _surplus(given, frozenset())
        if reason is not None:
            return self._refused("look", given, reason)
        self._spend()
        self.noops += 1
        return self._row("look", ToolArguments(), self.observe(), _UNCHANGED)

    def _status(self, given: dict[str, Any]) -> JournalRow:
        reason = _surplus(given, frozenset())
        if reason is not None:
            return self._refused("status", given, reason)
        return self._row("status", ToolArguments(), "", _UNCHANGED)

    def _act(self, given: dict[str, Any]) -> JournalRow:
        reason = "the episode is over" if self.done else _surplus(given, _KEYS) or _mistyped(given)
        if reason is not None:
            return self._refused("act", given, reason)
        action = Action(given["action"], given.get("x"), given.get("y"))
        reason = self.game.refuse(self.state, action)
        if reason is not None:
            return self._refused("act", given, reason)
        self.state = self.game.apply(self.state, action)
        before, self._frame = self._frame, self.game.frame(self.state)
        change = diff(before, self._frame, self.game.hud_rows, self.max_cells)
        self.noops += change.cells_changed == 0
        return self._row("act", ToolArguments(**action._asdict()), self.observe(), change)

    def _spend(self) -> None:
        if self.done:
            raise ValueError("the episode is over")
        self.state = self.game.idle(self.state)
        self._frame = self.game.frame(self.state)

    def _refused(self, tool: Literal["look", "act", "status"], given: dict[str, Any], reason: str) -> JournalRow:
        self.invalid += 1
        kept = {key: given.get(key) for key in _KEYS}
        arguments = ToolArguments(
            action=kept["action"] if isinstance(kept["action"], str) else None,
            x=kept["x"] if _is_int(kept["x"]) else None,
            y=kept["y"] if _is_int(kept["y"]) else None,
        )
        return self._row(tool, arguments, reason, _UNCHANGED)

    def _row(
        self, tool: Literal["look", "act", "status"], arguments: ToolArguments, observation: str, change: Diff
    ) -> JournalRow:
        state = self.state
        specs = [] if self.done else self.game.actions(state)
        result = ToolResult(
            actions=[ActionSpecRow(**spec._asdict()) for spec in specs],
            actions_left=state.budget - state.acts,
            decisions=state.acts,
            done=self.done,
            observation=observation,
            state="WIN" if state.cleared else "GAME_OVER" if self.done else "NOT_FINISHED",
            **change._asdict(),
        )
        return JournalRow(tool=tool, arguments=arguments, result=result)


def advanced(game: Game, state: Any, call: Any) -> Any:
    """The state behind a reply, as a session would have carried it out: for reading records again.

    Args:
        call: its tool call (`language.calls.ToolCall`); None for a reply without a usable one.
    """
    if call is None or call.tool == "look":
        return game.idle(state)
    if call.tool != "act":
        return state
    action = Action(call.action, call.x, call.y)
    return state if game.refuse(state, action) is not None else game.apply(state, action)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _surplus(given: Mapping[str, Any], known: frozenset[str]) -> str | None:
    """Null arguments are as good as absent ones: clients fill in what a schema names."""
    extra = sorted(str(key) for key, value in given.items() if key not in known and value is not None)
    return f"unknown argument {' '.join(extra)}" if extra else None


def _mistyped(given: Mapping[str, Any]) -> str | None:
    if not isinstance(given.get("action"), str):
        return "action must be a string"
    for key in ("x", "y"):
        value = given.get(key)
        if value is not None and not _is_int(value):
            return f"{key} must be an integer or null"
    return None
