"""What a rollout cost and how clean it was, as one flat dict. How well it was played is `evals.play_metrics`.

Invariant: every value is a finite number; shares with nothing to divide by are 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from internalize.harness.counted import invalid_metrics
from internalize.harness.episode import Episode
from internalize.rollout.advantages import Advantages


def rollout_metrics(episodes: Sequence[Episode], advantages: Advantages) -> dict[str, float]:
    """Counts and shares over all episodes, valid or not; advantages over the episodes that teach
    something."""
    calls = [c for e in episodes for c in e.calls]
    prompt = sum(len(c.prompt_ids) for c in calls)
    sampled = sum(len(c.output_ids) for c in calls)
    telling = [abs(a) for a, silent in zip(advantages.values, advantages.silent, strict=True) if not silent]
    return {
        "invalid_episodes": sum(not e.valid for e in episodes),
        **invalid_metrics(episodes),
        "groups": advantages.groups,
        "silent_groups": advantages.silent_groups,
        "silent_group_share": _share(advantages.silent_groups, advantages.groups),
        "advantage_abs_mean": _share(sum(telling), len(telling)),
        "llm_calls": len(calls),
        "prompt_tokens": prompt,
        "sampled_tokens": sampled,
        "sampled_tokens_per_call": _share(sampled, len(calls)),
        "prefix_cache_share": _share(sum(c.cached_tokens for c in calls), prompt),
        "truncated_share": _share(sum(c.finish == "length" for c in calls), len(calls)),
        "packed_share": _share(sum(e.prefix_extending for e in episodes), len(episodes)),
        "sampled_nll": _share(-sum(sum(c.logprobs) for c in calls), sampled),
        "unknown_words": sum(e.unknown_words for e in episodes),
        "context_longest": max((len(c.prompt_ids) + len(c.output_ids) for c in calls), default=0),
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
