"""Episodes to training sequences.

Invariant: `pg_mask` is 1 exactly on the tokens that the policy sampled in valid episodes, each once, with the
log-prob it was sampled at. Prompts, tool results and anything the harness wrote are never trained.

While every prompt of an episode extends the one before, the episode is one token sequence and is packed as
one (equal to one sample a call, because attention is causal, and several times cheaper); where a prefix
breaks, it is one sequence a call.
"""

from __future__ import annotations

from collections.abc import Sequence

from internalize.errors import UserError
from internalize.harness.episode import CallRecord, Episode
from internalize.rollout.advantages import Advantages
from internalize.train.batch import TrainSequence


def samples(episodes: Sequence[Episode], advantages: Advantages, per_call: bool = False) -> list[TrainSequence]:
    """Sequences of all valid episodes, in order. Episodes of silent groups are kept with advantage 0: they
    count in the batch that they belong to, and the trainer computes nothing for them.

    Args:
        per_call: one sequence a call even where packing is possible.
    """
    if len(episodes) != len(advantages):
        raise UserError("one advantage an episode", expected=str(len(episodes)), got=str(len(advantages)))
    out = []
    for episode, advantage in zip(episodes, advantages.values, strict=True):
        if not episode.valid or not episode.calls:
            continue
        if episode.prefix_extending and not per_call:
            out.append(_sequence(episode.plan.id, episode.calls, advantage))
        else:
            out.extend(_sequence(episode.plan.id, [call], advantage) for call in episode.calls)
    return out


def _sequence(episode: str, calls: Sequence[CallRecord], advantage: float) -> TrainSequence:
    """One sequence that ends with the last call's output; all `calls` lie in it."""
    tokens = calls[-1].prompt_ids + calls[-1].output_ids
    mask = [0] * len(tokens)
    logprobs = [0.0] * len(tokens)
    for call in calls:
        start = len(call.prompt_ids)
        end = start + len(call.output_ids)
        mask[start:end] = [1] * len(call.output_ids)
        logprobs[start:end] = call.logprobs
    return TrainSequence(
        tokens=tokens,
        advantages=[advantage * m for m in mask],
        rollout_logprobs=logprobs,
        pg_mask=mask,
        episode=episode,
    )
