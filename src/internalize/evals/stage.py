"""Evals stage: play evals and knowledge probes of an arm's checkpoints.

Invariant: every arm, seed and step plays the same level seeds with the same sampling draws (the band
`eval`), so two policies differ only by their weights. Step -1 is the base itself. A step without a
checkpoint (a stopped arm) has no row: what is not there is not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from internalize.checkpoints.layout import iterations
from internalize.engine.protocol import SamplingParams
from internalize.errors import MissingPayload, UserError
from internalize.evals.play_metrics import play_metrics
from internalize.evals.probes import Facts, ProbeSet
from internalize.files import read_jsonl, write_jsonl
from internalize.games import make_game
from internalize.games.protocol import Game
from internalize.games.shaping import ShapingWeights
from internalize.harness.choose import make_harness
from internalize.harness.counted import invalid_metrics, need_one
from internalize.harness.episode import write_episodes
from internalize.language.sayings import load_sayings
from internalize.rollout.actor import Player, open_player
from internalize.rollout.plans import single_plans
from internalize.store import WORK, Input

BASE_STEP = -1
DIGITS = 6


def build(
    folder: Path, spec: dict[str, Any], inputs: dict[str, Input], progress: Callable[[str], None]
) -> dict[str, Any]:
    """Write `metrics.jsonl` (one row a step and kind) and `episodes/step-XXXX/`.

    Args:
        spec: `game` {kind, ...}; `evals` {episodes, seed, levels, every, harness}; `rollout` {temperature,
            max_new_tokens, ...}; `steps`: the steps to measure, -1 for the base; optionally `max_context`, `engine`.
            Every step is probed; played are -1, the step before a change of phase, every `every`-th and the
            last.
        inputs: `knowledge`, `base`, and `step0000`, ... for each step >= 0.

    Returns:
        Facts: steps measured and played, and the last played step's return and clears.
    """
    game = make_game(**spec["game"])
    max_context = int(spec.get("max_context", 512))
    with open_player(inputs["base"].payload, game, spec.get("engine"), max_len=max_context) as player:
        return _measure(folder, spec, inputs, progress, game, player)


def _measure(
    folder: Path,
    spec: dict[str, Any],
    inputs: dict[str, Input],
    progress: Callable[[str], None],
    game: Game,
    player: Player,
) -> dict[str, Any]:
    engine, template = player.engine, player.template
    evals, sampling = spec["evals"], spec["rollout"]
    max_context = int(spec.get("max_context", 512))
    harness = make_harness(
        evals.get("harness"),
        engine=engine,
        game=game,
        template=template,
        sampling=SamplingParams(float(sampling["temperature"]), int(sampling["max_new_tokens"]), (template.stop_id,)),
        shaping=ShapingWeights(),
        max_context=max_context,
        together=player.together,
    )
    knowledge = inputs["knowledge"]
    true = knowledge.facts["prompt_facts"]
    sayings = load_sayings(knowledge.payload, knowledge.facts)
    facts = Facts.of(true, knowledge.facts["held_out_facts"], sayings, evals["seed"])
    probes = ProbeSet(game, template, facts, list(read_jsonl(knowledge.payload / "recall.jsonl")), evals["seed"])
    plans = single_plans("eval", evals["seed"], evals["episodes"], evals["levels"])
    measured = _measurable(spec["steps"], inputs)
    phases = {step: "base" if step == BASE_STEP else str(inputs[_name(step)].facts["phase"]) for step in measured}
    played = play_steps(measured, phases, int(evals.get("every", 1)))
    rows: list[dict[str, Any]] = []
    for step in measured:
        if step != BASE_STEP:
            player.load_checkpoint(_checkpoint(inputs[_name(step)].payload), f"step-{step}")
        head = {"step": step, "phase": phases[step]}
        rows.append({**head, "kind": "probe", **_rounded(probes.measure(engine))})
        if step in played:
            label = step_label(step)
            episodes = harness.play(plans, seed_key=("eval", evals["seed"]), record=folder / WORK / label)
            write_episodes(folder / "episodes" / label, episodes)
            need_one(episodes, f"eval {label}, {harness.name}")
            measures = play_metrics(episodes, game, facts.true, sayings) | invalid_metrics(episodes)
            rows.append({**head, "kind": "eval", **_rounded(measures)})
            progress(_headline(rows[-1]))
    write_jsonl(folder / "metrics.jsonl", rows)
    final: dict[str, Any] = next((row for row in reversed(rows) if row["kind"] == "eval"), {})
    return {
        "steps": measured,
        "played": sorted(played),
        "final": {key: final.get(key) for key in ("step", "return_mean", "clears", "episodes")},
    }


def play_steps(steps: Sequence[int], phases: dict[int, str], every: int) -> set[int]:
    """Which of `steps` get a play eval: the base, each last step before the phase changes, every
    `every`-th, the last."""
    chosen = {step for step in steps if step == BASE_STEP or (step + 1) % every == 0}
    chosen |= {a for a, b in pairwise(steps) if phases[a] != phases[b]}
    return chosen | set(steps[-1:])


def step_label(step: int) -> str:
    """Folder name of a step's episodes: `step-0007`, `step-base`."""
    return "step-base" if step == BASE_STEP else f"step-{step:04d}"


def _measurable(steps: Sequence[int], inputs: dict[str, Input]) -> list[int]:
    """The steps that have weights, ascending.

    Raises:
        UserError: a step has no input.
    """
    missing = [_name(step) for step in steps if step != BASE_STEP and _name(step) not in inputs]
    if missing:
        raise UserError(
            "a step to measure has no receipt",
            where="evals",
            expected=", ".join(missing),
            got=", ".join(sorted(inputs)),
        )
    return [step for step in sorted(set(steps)) if step == BASE_STEP or iterations(inputs[_name(step)].payload)]


def _checkpoint(payload: Path) -> Path:
    found = iterations(payload)
    if not found:
        raise MissingPayload("a step has no checkpoint", where=str(payload))
    return payload / f"iter_{found[-1]:07d}"


def _name(step: int) -> str:
    return f"step{step:04d}"


def _headline(row: dict[str, Any]) -> str:
    mean = row["return_mean"]
    told = "no episode counts" if mean is None else f"return {mean:+.3f}, clears {row['clears']}/{row['episodes']}"
    lost = row["invalid_episodes"]
    return f"eval step {row['step']}: {told}{f', {lost} episodes not counted' if lost else ''}"


def _rounded(metrics: dict[str, float | None]) -> dict[str, Any]:
    return {
        key: value if value is None or isinstance(value, int) else round(value, DIGITS)
        for key, value in metrics.items()
    }
