"""`softlabel`: context distillation. The policy's own turns, each token labelled with the distribution
that the frozen base gives it with the knowledge in its prompt.

Invariant: the teacher reads the same conversation as the student, with the facts in front of it and
nothing else different; row t of its labels speaks of predicting token t. The rows are made while training,
from the current policy, so the row set itself holds no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from internalize.harness.episode import Episode
from internalize.language.dialogue import Dialogue
from internalize.records import SftRow
from internalize.rows.context import RowContext
from internalize.train.batch import TrainSequence

if TYPE_CHECKING:
    from torch import Tensor


class Scorer(Protocol):
    """The part of an engine that labels: log-probs [len, vocabulary], row t for the token after
    position t."""

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Tensor]:
        """One table a sequence."""
        ...


def build(context: RowContext, settings: dict[str, Any]) -> list[SftRow]:
    """No rows: `online` (in `online.json`) says how many episodes each step plays and labels."""
    return []


def online(settings: dict[str, Any]) -> dict[str, int] | None:
    """How rows of this source are made while training; None for sources whose rows are stored."""
    if settings["type"] != "softlabel":
        return None
    return {"episodes": int(settings["episodes"])}


def softlabel_sequences(
    episodes: Sequence[Episode], teacher: Scorer, template: Dialogue, facts: Sequence[Sequence[str]]
) -> list[TrainSequence]:
    """Episodes as sequences with teacher labels, in one scoring pass; without those that can't be packed or have no
    turn that ended in a call.

    Args:
        episodes: played by the current policy without knowledge.
        teacher: the frozen base.
        facts: what the teacher is told, by episode and in this order. Leave held-out facts out: labels teach what
            they know.
    """
    usable = []
    for episode, told in zip(episodes, facts, strict=True):
        if episode.valid and episode.prefix_extending and any(call.kind == "call" for call in episode.calls):
            asked = episode.calls[0].prompt_ids
            usable.append((episode, asked, template.user(template.read_user(asked)[0], told)))
    plain = [[*episode.calls[-1].prompt_ids, *episode.calls[-1].output_ids] for episode, _, _ in usable]
    tables = teacher.score(
        [front + tokens[len(asked) :] for tokens, (_, asked, front) in zip(plain, usable, strict=True)]
    )
    made = []
    for (episode, asked, front), tokens, table in zip(usable, plain, tables, strict=True):
        shift = len(front) - len(asked)
        labels = np.zeros((len(tokens), table.shape[1]), dtype=np.float32)
        labels[1:] = table[shift : shift + len(tokens) - 1].numpy()
        mask = [0] * len(tokens)
        for call in episode.calls:
            if call.kind == "call":
                start = len(call.prompt_ids)
                mask[start : start + len(call.output_ids)] = [1] * len(call.output_ids)
        made.append(TrainSequence(tokens=tokens, teacher_logprobs=labels, kl_mask=mask, episode=episode.plan.id))
    return made
