"""The gate: the base must play by the facts in its prompt and must not know them without.

Invariant: an arm starts only from a base that cleared enough levels with the verified facts in its prompt,
few without any and few with false ones; so what an arm gains later comes from its training.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from internalize.base.play import BUNDLED, Limits, Side, play_side, pooled
from internalize.engine.protocol import Engine
from internalize.errors import GateFailed
from internalize.evals.play_metrics import play_metrics
from internalize.files import write_json
from internalize.games import make_game
from internalize.games.protocol import Game
from internalize.harness.episode import write_episodes
from internalize.language.dialogue import Dialogue
from internalize.language.sayings import Sayings, load_sayings
from internalize.rollout.actor import open_player
from internalize.seeds import rng
from internalize.store import Input

TEACHER, BASE, WRONG, PARTIAL = "teacher", "base", "wrong_rules", "partial"

#: Fact lists that each control is spread over.
CONTROL_SETS = 4

#: Facts that the `partial` control is told.
PARTIAL_FACTS = 5

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Verdict:
    """The four sides and what they fall short of (empty: passed)."""

    sides: dict[str, Side]
    shortfalls: list[str]

    @property
    def passed(self) -> bool:
        """True when every bound is met."""
        return not self.shortfalls

    def figures(self) -> dict[str, Any]:
        """What `gate.json` and the receipt hold."""
        return {
            "passed": self.passed,
            "shortfalls": self.shortfalls,
            **{name: s.summary() for name, s in self.sides.items()},
        }


def build(folder: Path, spec: dict[str, Any], inputs: dict[str, Input], progress: Progress) -> dict[str, Any]:
    """Plays the sides, writes gate.json and the episodes of teacher and base.

    Args:
        spec: `game`, `gate` {teacher_clears_min, base_clears_max, wrong_rules_clears_max, episodes, seed};
            optionally `rollout` {temperature, max_new_tokens}, `max_context`, `engine`.
        inputs: `base` and `knowledge` (fact `prompt_facts`).

    Returns:
        Facts: the figures of each side, and `reference`: the play metrics of the base without knowledge
        (the collapse guard compares arms with it).

    Raises:
        GateFailed: a bound is missed; the message has the figures.
    """
    game = make_game(**spec["game"])
    known = inputs["knowledge"]
    sayings = load_sayings(known.payload, known.facts)
    facts, notes = known.facts["prompt_facts"], known.facts.get("prompt_notes", [])
    limits = Limits.of(spec)
    with open_player(inputs["base"].payload, game, spec.get("engine"), max_len=limits.max_context) as player:
        verdict = measure(
            player.engine, game, player.template, facts, spec["gate"], progress, sayings, notes=notes, limits=limits
        )
    figures = verdict.figures()
    reference = play_metrics(verdict.sides[BASE].episodes, game, facts, sayings)
    figures["reference"] = {key: value if value is None else round(value, 6) for key, value in reference.items()}
    write_json(folder / "gate.json", {"bounds": spec["gate"], **figures})
    for name in (TEACHER, BASE):
        write_episodes(folder / name, verdict.sides[name].episodes)
    require(verdict, spec["gate"])
    return figures


def measure(
    engine: Engine,
    game: Game,
    template: Dialogue,
    facts: Sequence[str],
    bounds: dict[str, Any],
    progress: Progress,
    sayings: Sayings,
    *,
    notes: Sequence[str] = (),
    limits: Limits = BUNDLED,
) -> Verdict:
    """Play all four sides: `bounds["episodes"]` for teacher and base, half as many for each control. `notes` are told
    to all who are told facts."""
    seed, episodes = int(bounds["seed"]), int(bounds["episodes"])
    draw = rng("gate", seed, "controls")

    def side(name: str, known: Sequence[str] | None, count: int) -> Side:
        played = play_side(
            engine,
            game,
            template,
            band="gate",
            episodes=count,
            seed=seed,
            key=("gate", seed, name),
            facts=None if known is None else [*map(sayings.say, known), *notes],
            limits=limits,
        )
        progress(f"gate: {name} cleared {played.clears} of {count}")
        return played

    def control(name: str, lists: Sequence[Sequence[str]]) -> Side:
        return pooled([side(f"{name}{i}", known, max(1, episodes // 2 // len(lists))) for i, known in enumerate(lists)])

    sides = {
        TEACHER: side(TEACHER, facts, episodes),
        BASE: side(BASE, None, episodes),
        WRONG: control(WRONG, [wrong_facts(facts, sayings.places, draw) for _ in range(CONTROL_SETS)]),
        PARTIAL: control(
            PARTIAL, [draw.sample(list(facts), min(PARTIAL_FACTS, len(facts))) for _ in range(CONTROL_SETS)]
        ),
    }
    return Verdict(sides, list(_shortfalls(sides, bounds)))


def require(verdict: Verdict, bounds: dict[str, Any]) -> None:
    """Raise GateFailed with the figures unless the verdict passed."""
    if verdict.passed:
        return
    raise GateFailed(
        "; ".join(verdict.shortfalls),
        where="base.gate",
        expected=f"teacher >= {bounds['teacher_clears_min']:.0%}, base <= {bounds['base_clears_max']:.0%}, "
        f"wrong rules <= {bounds['wrong_rules_clears_max']:.0%}",
        got=", ".join(f"{name} {side.describe()}" for name, side in verdict.sides.items()),
        fix="raise base.recipe.steps (the look-up forms late), try another base.recipe.seed, or, to see the "
        "arms all the same, lower the bound in base.gate",
    )


def wrong_facts(facts: Sequence[str], groups: Sequence[Sequence[str]], draw: random.Random) -> list[str]:
    """The same subjects at other places of their group: a complete rule set of which no fact is true."""
    lies = []
    for places in groups:
        told = [fact.split("@") for fact in facts if fact.split("@")[1] in places]
        moved = [place for _, place in told]
        while any(place == true for place, (_, true) in zip(moved, told, strict=True)):
            draw.shuffle(moved)
        lies += [f"{subject}@{place}" for (subject, _), place in zip(told, moved, strict=True)]
    return lies


def _shortfalls(sides: dict[str, Side], bounds: dict[str, Any]) -> list[str]:
    found = []
    if sides[TEACHER].share < bounds["teacher_clears_min"]:
        found.append(f"with the facts in its prompt the base clears {sides[TEACHER].describe()}")
    if sides[BASE].share > bounds["base_clears_max"]:
        found.append(f"without facts the base clears {sides[BASE].describe()}")
    if sides[WRONG].share > bounds["wrong_rules_clears_max"]:
        found.append(f"with false facts the base clears {sides[WRONG].describe()}")
    return found
