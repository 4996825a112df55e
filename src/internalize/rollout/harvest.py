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
from internalize.harness.episode import write_episodes
from internalize.harness.inprocess import InProcess
from internalize.rollout.actor import load_engine
from internalize.rollout.plans import single_plans
from internalize.store import Input

POLICIES = ("teacher", "base")


def build(
    folder: Path, spec: dict[str, Any], inputs: dict[str, Input], progress: Callable[[str], None]
) -> dict[str, Any]:
    """Play `spec["harvest"]["episodes"]` episodes into `folder`; facts: policy, episodes, valid, clears, mean
    return, calls, acts.

    Args:
        spec: `game` {kind, ...}, `harvest` {policy, episodes, seed}, `levels`, `rollout` {temperature,
        max_new_tokens, ...};
            optionally `max_context`.
        inputs: `base` (model folder) and `knowledge` (fact `prompt_facts`).
    """
    harvest, sampling = spec["harvest"], spec["rollout"]
    policy = harvest["policy"]
    if policy not in POLICIES:
        raise UserError(
            "unknown harvest policy", where="harvest.policy", expected=" or ".join(POLICIES), got=str(policy)
        )
    knowledge = inputs["knowledge"].facts["prompt_facts"] if policy == "teacher" else None
    game = make_game(**spec["game"])
    max_context = int(spec.get("max_context", 512))
    engine, template, _ = load_engine(inputs["base"].payload, max_len=max_context, game=game)
    harness = InProcess(
        engine,
        game,
        template,
        SamplingParams(
            temperature=float(sampling["temperature"]),
            max_new_tokens=int(sampling["max_new_tokens"]),
            stop_ids=(template.stop_id,),
        ),
        ShapingWeights(),
        max_context,
    )
    plans = single_plans("harvest", harvest["seed"], harvest["episodes"], spec["levels"], f"harvest-{policy}")
    progress(f"harvest {policy}: playing {len(plans)} episodes")
    episodes = harness.play(plans, seed_key=("harvest", policy, harvest["seed"]), knowledge=knowledge)
    write_episodes(folder, episodes)
    clears = sum(e.outcome.cleared for e in episodes)
    mean = sum(e.returned for e in episodes) / len(episodes)
    progress(f"harvest {policy}: {clears}/{len(episodes)} clears, mean return {mean:+.3f}")
    return {
        "policy": policy,
        "episodes": len(episodes),
        "valid": sum(e.valid for e in episodes),
        "clears": clears,
        "return_mean": round(mean, 6),
        "calls": sum(len(e.calls) for e in episodes),
        "unknown_words": sum(e.unknown_words for e in episodes),
    }
