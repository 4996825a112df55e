"""Optimizer batches of a step, from its episodes or from the policy's own turns under a teacher's labels.

Invariant: an RL batch holds whole episodes, each episode is in exactly one batch, and their order comes from one seeded
draw.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from internalize.engine.local import LocalEngine
from internalize.errors import UserError
from internalize.harness.episode import Episode
from internalize.harness.protocol import Harness
from internalize.language.dialogue import Dialogue
from internalize.rollout.plans import single_plans
from internalize.rows.softlabel import softlabel_sequences
from internalize.train.batch import TrainSequence


def rl_batches(
    sequences: Sequence[TrainSequence], episodes: Sequence[str], optimizer_steps: int, draw: random.Random
) -> list[list[TrainSequence]]:
    """Shuffles the episodes and deals them out evenly over `optimizer_steps` batches."""
    order = list(episodes)
    draw.shuffle(order)
    size = len(order) // optimizer_steps
    of = {episode: min(position // size, optimizer_steps - 1) for position, episode in enumerate(order)}
    batches: list[list[TrainSequence]] = [[] for _ in range(optimizer_steps)]
    for sequence in sequences:
        batches[of[sequence.episode]].append(sequence)
    return batches


def own_episodes(
    harness: Harness, number: int, levels: Sequence[int], seed: int, step: int, record: Path | None = None
) -> list[Episode]:
    """Episodes of the current policy, to be labelled by the teacher."""
    plans = single_plans("softlabel", seed * 1000 + step, number, levels, f"own-{step:04d}")
    return harness.play(plans, seed_key=("softlabel", seed, step), record=record)


def softlabel_batches(
    episodes: Sequence[Episode],
    teacher: LocalEngine,
    template: Dialogue,
    facts: Sequence[str],
    count: int,
    turns: int,
    draw: random.Random,
) -> list[list[TrainSequence]]:
    """`count` batches of labelled episodes (`rows.softlabel`), drawn with replacement until each holds `turns` turns.

    Raises:
        UserError: no episode can be labelled.
    """
    told = [draw.sample(list(facts), len(facts)) for _ in episodes]
    labelled = softlabel_sequences(episodes, teacher, template, told)
    if not labelled:
        raise UserError("the policy played no episode that can be labelled", fix="raise the row set's `episodes`")
    sizes = {e.plan.id: len(e.calls) for e in episodes}
    batches: list[list[TrainSequence]] = []
    for _ in range(count):
        batch: list[TrainSequence] = []
        held = 0
        while held < turns:
            sequence = draw.choice(labelled)
            batch.append(sequence)
            held += sizes[sequence.episode]
        batches.append(batch)
    return batches
