"""Harvest stage: episodes of the teacher (the base with the verified facts in its prompt) or of the base
alone.

Invariant: the teacher is told exactly the verified facts of the knowledge set (`prompt_facts`), each once,
shuffled per episode; nothing in a harvest comes from the game's rules object except through play.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from internalize.engine.protocol import SamplingParams
from internalize.errors import UserError
from internalize.games import make_game
from internalize.games.shaping import ShapingWeights
from internalize.harness.choose import make_harness
from internalize.harness.counted import invalid_reasons, need_one
from internalize.harness.episode import write_episodes
from internalize.language.sayings import load_sayings, told_facts
from internalize.rollout.actor import open_player
from internalize.rollout.plans import single_plans
from internalize.store import WORK, Input

POLICIES = ("teacher", "base")


def build(
    folder: Path, spec: dict[str, Any], inputs: dict[str, Input], progress: Callable[[str], None]
) -> dict[str, Any]:
    """Play `spec["harvest"]["episodes"]` episodes into `folder`; facts: policy, episodes, valid, clears and mean
    return of the valid ones, calls, and why the others do not count.

    Args:
        spec: `game` {kind, ...}, `harvest` {policy, episodes, seed, harness}, `levels`, `rollout` {temperature,
            max_new_tokens, ...}; optionally `max_context`, `engine`.
        inputs: `base` (model folder) and `knowledge` (fact `prompt_facts`).
    """
    harvest, sampling = spec["harvest"], spec["rollout"]
    policy = harvest["policy"]
    if policy not in POLICIES:
        raise UserError(
            "unknown harvest policy", where="harvest.policy", expected=" or ".join(POLICIES), got=str(policy)
        )
    known = inputs["knowledge"]
    knowledge = told_facts(known.facts, load_sayings(known.payload, known.facts)) if policy == "teacher" else None
    game = make_game(**spec["game"])
    max_context = int(spec.get("max_context", 512))
    plans = single_plans("harvest", harvest["seed"], harvest["episodes"], spec["levels"], f"harvest-{policy}")
    with open_player(inputs["base"].payload, game, spec.get("engine"), max_len=max_context) as player:
        harness = make_harness(
            harvest.get("harness"),
            engine=player.engine,
            game=game,
            template=player.template,
            sampling=SamplingParams(
                temperature=float(sampling["temperature"]),
                max_new_tokens=int(sampling["max_new_tokens"]),
                stop_ids=(player.template.stop_id,),
            ),
            shaping=ShapingWeights(),
            max_context=max_context,
            together=player.together,
        )
        progress(f"harvest {policy}: {harness.name} plays {len(plans)} episodes")
        seed_key = ("harvest", policy, harvest["seed"])
        episodes = harness.play(plans, seed_key=seed_key, knowledge=knowledge, record=folder / WORK)
    write_episodes(folder, episodes)
    need_one(episodes, f"harvest {policy}, {harness.name}")
    valid = [e for e in episodes if e.valid]
    clears = sum(e.outcome.cleared for e in valid)
    mean = sum(e.returned for e in valid) / len(valid) if valid else 0.0
    invalid = invalid_reasons(episodes)
    progress(f"harvest {policy}: {clears}/{len(valid)} clears, mean return {mean:+.3f}{_but(invalid)}")
    return {
        "policy": policy,
        "episodes": len(episodes),
        "valid": len(valid),
        **({"invalid": invalid} if invalid else {}),
        "clears": clears,
        "return_mean": round(mean, 6),
        "calls": sum(len(e.calls) for e in episodes),
        "unknown_words": sum(e.unknown_words for e in episodes),
    }


def _but(invalid: dict[str, int]) -> str:
    return f"; not counted: {', '.join(f'{n} {reason}' for reason, n in invalid.items())}" if invalid else ""
