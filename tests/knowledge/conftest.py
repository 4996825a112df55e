"""The bundled study's knowledge set, built once; a game that hides its rules; a game with other probes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from internalize.files import read_jsonl
from internalize.games.dipwheel import DipWheel, Rules
from internalize.games.protocol import Action, ActionSpec, Game
from internalize.knowledge.atoms import Atom, Provenance, Scope
from internalize.knowledge.dsl import Experiment
from internalize.knowledge.stage import build

RULES = {
    "stations": {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"},
    "pots": {"a": "blue", "b": "red", "c": "green"},
}
SPEC: dict[str, Any] = {
    "game": {"kind": "dipwheel", "rules": RULES},
    "knowledge": {
        "trials": 20,
        "held_out": {"subjects": ["wipe"], "atom_fraction": 0.2, "forms": ["paraphrase"]},
        "exploration": {"episodes": 200, "seed": 0},
    },
}


class Built(NamedTuple):
    """One run of the stage."""

    folder: Path
    facts: dict[str, Any]
    atoms: list[Atom]
    messages: list[str]


@pytest.fixture(scope="session")
def spec() -> dict[str, Any]:
    return SPEC


@pytest.fixture(scope="session")
def rules() -> Rules:
    return Rules.of(RULES["stations"], RULES["pots"])


@pytest.fixture(scope="session")
def game(rules: Rules) -> DipWheel:
    return DipWheel(rules)


def _read_atoms(path: Path) -> list[Atom]:
    """The atoms of an `atoms.jsonl`, each under the hash that it was written with."""
    rows = list(read_jsonl(path))
    hashes = [row.pop("hash") for row in rows]
    atoms = [Atom.model_validate(row) for row in rows]
    assert [atom.hash for atom in atoms] == hashes
    return atoms


@pytest.fixture(scope="session")
def read_atoms() -> Callable[[Path], list[Atom]]:
    return _read_atoms


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("knowledge")
    messages: list[str] = []
    facts = build(folder, SPEC, {}, messages.append)
    return Built(folder, facts, _read_atoms(folder / "atoms.jsonl"), messages)


class Blindfold:
    """A game that can be played and watched, but not asked for its rules, plans or advice."""

    SECRETS = frozenset({"rules", "plan", "advice", "_paints"})

    def __init__(self, game: Game) -> None:
        self._game = game

    def __getattr__(self, name: str) -> Any:
        if name in self.SECRETS:
            raise AssertionError(f"candidates must not read {name}")
        return getattr(self._game, name)


@pytest.fixture(scope="session")
def blindfold() -> type[Blindfold]:
    return Blindfold


class LampState(NamedTuple):
    level: int
    budget: int
    acts: int
    lamp: bool
    dial: int

    @property
    def cleared(self) -> bool:
        return self.lamp and self.dial == 3

    @property
    def dead(self) -> bool:
        return False

    @property
    def done(self) -> bool:
        return self.cleared or self.acts >= self.budget


class Lamp:
    """A switch (`press` toggles the lamp) and a dial of four (`turn`); `rest` does nothing. Clear: lamp
    on, dial 3.

    A fickle lamp ignores the first two presses that anybody ever makes: no act list reproduces that.
    """

    name = "lamp"
    levels = (1,)
    training_levels = (1,)
    hud_rows: frozenset[int] = frozenset()

    def __init__(self, fickle: bool = False) -> None:
        self.fickle = fickle
        self.presses = 0

    def words(self) -> tuple[str, ...]:
        return ("press", "turn", "rest")

    def start(self, level: int, seed: int) -> LampState:
        return LampState(level, 8, 0, seed % 2 == 1, seed // 2 % 3)

    def refuse(self, state: LampState, action: Action) -> str | None:
        return "over" if state.done else None

    def apply(self, state: LampState, action: Action) -> LampState:
        state = state._replace(acts=state.acts + 1)
        if action.action == "TURN":
            return state._replace(dial=(state.dial + 1) % 4)
        if action.action == "PRESS":
            self.presses += 1
            return state if self.fickle and self.presses <= 2 else state._replace(lamp=not state.lamp)
        return state

    def idle(self, state: LampState) -> LampState:
        return state._replace(acts=state.acts + 1)

    def observe(self, state: LampState) -> str:
        return ""

    def frame(self, state: LampState) -> tuple[tuple[int, ...], ...]:
        return ((int(state.lamp), state.dial),)

    def labels(self) -> dict[tuple[int, int], str]:
        return {}

    def actions(self, state: LampState) -> list[ActionSpec]:
        return [ActionSpec(word.upper(), False) for word in self.words()]

    def call_words(self) -> dict[str, Action]:
        return {word: Action(word.upper()) for word in self.words()}

    def progress(self, state: LampState) -> float:
        return (state.lamp + state.dial) / 4

    def probes(self, state: LampState) -> dict[str, Any]:
        return {
            "lamp": state.lamp,
            "dial": state.dial,
            "row": [state.lamp, state.dial],
            "cleared": state.cleared,
        }

    def plan(self, state: LampState) -> list[Action]:
        raise AssertionError("not needed")

    def advice(self, state: LampState) -> Any:
        raise AssertionError("not needed")

    def legend(self) -> str:
        raise AssertionError("not needed")

    def place(self, state: LampState, word: str) -> str | None:
        raise AssertionError("not needed")


@pytest.fixture
def lamp() -> Lamp:
    return Lamp()


@pytest.fixture
def fickle_lamp() -> Lamp:
    return Lamp(fickle=True)


@pytest.fixture(scope="session")
def claim() -> Callable[..., Atom]:
    """`claim(expect=[..], null=[..], ..)`: an atom about the lamp from the JSON of its experiment."""

    def make(name: str = "claim", levels: tuple[int, ...] = (1,), game: str = "lamp", **test: Any) -> Atom:
        return Atom(
            id=f"{game}/test/{name}",
            claim=name,
            kind="action_effect",
            family="test",
            terms={},
            scope=Scope(game=game, levels=list(levels)),
            test=Experiment.model_validate({"null": [{"op": "otherwise"}], **test}),
            provenance=Provenance.of("generator"),
        )

    return make
