"""Episodes of scripted players on the bundled game, and a small knowledge set about it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from internalize.engine.protocol import Completion, SamplingParams
from internalize.files import write_jsonl
from internalize.games.dipwheel import DipWheel, decide, from_settings, random_rules
from internalize.harness.episode import Episode, EpisodePlan, write_episodes
from internalize.harness.inprocess import play
from internalize.knowledge.dipwheel import DipwheelLexicon
from internalize.language.sayings import make_sayings
from internalize.language.template import Template
from internalize.rows.context import Knowledge, RowContext

RULES = {
    "stations": {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"},
    "pots": {"a": "blue", "b": "red", "c": "green"},
}
HELD_OUT = "wipe@S"

#: What a scripted player says in a state: (think, call word), or a whole reply in words.
Policy = Callable[[Any, int], "tuple[str, str] | str"]


class Script:
    """An engine that replays replies made beforehand."""

    slots, max_len = 64, 512

    def __init__(self, replies: dict[str, list[list[int]]]) -> None:
        self.replies = replies

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sessions: Sequence[str],
        rngs: Sequence[np.random.Generator],
        sampling: SamplingParams,
    ) -> list[Completion]:
        spoken = [self.replies[session].pop(0) for session in sessions]
        return [Completion(ids, [-0.1] * len(ids), "stop", "script", 0) for ids in spoken]

    def release(self, sessions: Sequence[str]) -> None:
        """Nothing is held."""


@pytest.fixture(scope="session")
def game_settings() -> dict[str, Any]:
    return {"kind": "dipwheel", "rules": RULES}


@pytest.fixture(scope="session")
def game() -> DipWheel:
    return from_settings(RULES)


@pytest.fixture(scope="session")
def template(game: DipWheel) -> Template:
    return Template.of(game)


@pytest.fixture(scope="session")
def perform(game: DipWheel, template: Template) -> Callable[..., list[Episode]]:
    """Play plans with a policy, through the real harness."""

    def run(policy: Policy, starts: Sequence[tuple[int, int]], known: bool = False, label: str = "e") -> list[Episode]:
        plans = [EpisodePlan(f"{label}{i}", level, seed, i, 0) for i, (level, seed) in enumerate(starts)]
        replies: dict[str, list[list[int]]] = {}
        for plan in plans:
            state = game.start(plan.level, plan.seed)
            spoken = replies.setdefault(plan.id, [])
            while not state.done:
                said = policy(state, len(spoken))
                if isinstance(said, str):
                    spoken.append(template.vocab.encode(said))
                    parsed = template.parse(spoken[-1])
                    if parsed.kind == "say":
                        break
                    word = parsed.call
                else:
                    spoken.append(template.reply_ids(said[0], call=said[1]))
                    word = said[1]
                action = game.call_words().get(word or "")
                state = game.idle(state) if action is None else game.apply(state, action)
        return play(
            Script(replies),
            game,
            template,
            plans,
            sampling=SamplingParams(stop_ids=(template.stop_id,)),
            seed_key=("rows", label),
            knowledge=game.rules.facts() if known else None,
        )

    return run


@pytest.fixture(scope="session")
def knowing(game: DipWheel) -> Policy:
    """A player who knows the rules; every other think opens with a recited fact."""

    def policy(state: Any, turn: int) -> tuple[str, str]:
        think, call = decide(state, game.rules)
        return (f"green@c {think}" if turn % 2 == 0 else think), call

    return policy


@pytest.fixture(scope="session")
def guessing(game: DipWheel) -> Policy:
    """A player who believes other rules every time, never the held-out fact."""

    def policy(state: Any, turn: int) -> tuple[str, str]:
        draw = random.Random(f"{state}{turn}")
        while True:
            rules = random_rules(draw)
            if HELD_OUT not in rules.facts():
                return decide(state, rules)

    return policy


@pytest.fixture(scope="session")
def teacher(perform: Any, knowing: Policy) -> list[Episode]:
    return list(perform(knowing, [(1 + i % 4, 100 + i) for i in range(12)], known=True, label="t"))


@pytest.fixture(scope="session")
def own(perform: Any, guessing: Policy) -> list[Episode]:
    return list(perform(guessing, [(1 + i % 4, 300 + i) for i in range(8)], label="o"))


def forms_of(fact: str, held: bool) -> list[dict[str, Any]]:
    subject, place = fact.split("@")
    first, second = ("a", "b") if place in "abc" else ("N", "S")
    wrong = second if place == first else first
    other, paraphrase = f"{subject} at {place}", f"at {place} is {subject}"
    entries = [
        ("declarative", "think", f"ask {subject}", fact, None),
        ("declarative", "other", f"ask {subject}", other, None),
        ("qa", "think", f"ask {subject}", fact, None),
        ("qa", "other", f"ask {place}", other, None),
        ("cloze", "other", f"blank {subject} at", place, None),
        ("paraphrase", "other", f"ask {subject}", paraphrase, None),
        ("claimform", "think", f"claim {fact}", "true", True),
        ("claimform", "think", f"claim {subject}@{wrong}", "false", False),
        ("claimform", "other", f"claim {other}", "true", True),
        ("claimform", "other", f"claim {subject} at {wrong}", "false", False),
    ]
    return [
        {
            "atom": f"dipwheel/{subject}.{place}",
            "kind": "action_effect",
            "family": "region",
            "form": form,
            "wording": wording,
            "prompt": prompt,
            "answer": answer,
            "label": label,
            "fact": fact,
            "held_out": held or form == "paraphrase",
            "expressible": True,
        }
        for form, wording, prompt, answer, label in entries
    ]


@pytest.fixture(scope="session")
def knowledge(game: DipWheel) -> Knowledge:
    facts = sorted(game.rules.facts())
    recall = [row for fact in facts for row in forms_of(fact, fact == HELD_OUT)]
    plan = {
        "atom": "dipwheel/plan",
        "kind": "strategy",
        "family": "plan",
        "label": None,
        "fact": None,
        "held_out": False,
    }
    recall += [
        {
            **plan,
            "form": "qa",
            "wording": "other",
            "prompt": "ask left red",
            "answer": "pot:b dip:N",
            "expressible": True,
        },
        {
            **plan,
            "form": "qa",
            "wording": "other",
            "prompt": "ask budget",
            "answer": "four",
            "expressible": False,
        },
    ]
    said = DipwheelLexicon(game).sayings()
    return Knowledge(tuple(facts), frozenset([HELD_OUT]), tuple(recall), make_sayings(said))


@pytest.fixture
def make_context(game: DipWheel, template: Template, knowledge: Knowledge) -> Callable[..., RowContext]:
    def make(**settings: Any) -> RowContext:
        return RowContext(template=template, game=game, knowledge=knowledge, **settings)

    return make


@pytest.fixture
def stage_inputs(
    template: Template, knowledge: Knowledge, teacher: list[Episode], own: list[Episode], tmp_path: Path
) -> dict[str, Any]:
    """Opened inputs of the rows stage: base, knowledge, and the harvests `teacher` and `own`."""
    folders = {name: tmp_path / name for name in ("base", "knowledge", "teacher", "own")}
    for folder in folders.values():
        folder.mkdir()
    template.vocab.write(folders["base"])
    write_jsonl(folders["knowledge"] / "recall.jsonl", knowledge.recall)
    write_episodes(folders["teacher"], teacher)
    write_episodes(folders["own"], own)
    facts = {"prompt_facts": list(knowledge.prompt_facts), "held_out_facts": sorted(knowledge.held_out_facts)}
    return {
        name: SimpleNamespace(payload=folder, facts=facts if name == "knowledge" else {})
        for name, folder in folders.items()
    }
