"""Teacher labels: the right row of the right conversation for every token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from internalize.games.dipwheel import DipWheel
from internalize.harness.episode import Episode
from internalize.language.template import Template
from internalize.rollout.actor import load_engine
from internalize.rows.softlabel import online, softlabel_sequences


class Prefixes:
    """A teacher whose table says which token it read last and how many it had read."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.read: list[list[int]] = []

    def score(self, sequences: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        self.read = [list(s) for s in sequences]
        tables = []
        for sequence in sequences:
            table = torch.zeros(len(sequence), self.vocabulary)
            table[:, 0] = torch.tensor(sequence, dtype=torch.float32)
            table[:, 1] = torch.arange(1, len(sequence) + 1)
            tables.append(table)
        return tables


def test_the_teacher_reads_what_play_with_knowledge_would_show(
    game: DipWheel, template: Template, own: list[Episode]
) -> None:
    facts = list(game.rules.facts())
    teacher = Prefixes(len(template.vocab))
    softlabel_sequences(own[:3], teacher, template, [facts] * 3)
    for episode, read in zip(own, teacher.read, strict=False):
        text = game.observe(game.start(episode.plan.level, episode.plan.seed))
        first = template.user(text, facts)
        last = episode.calls[-1]
        assert read == first + (last.prompt_ids + last.output_ids)[len(template.user(text)) :]


def test_row_t_is_the_teachers_view_before_token_t(game: DipWheel, template: Template, own: list[Episode]) -> None:
    facts = list(game.rules.facts())
    (made,) = softlabel_sequences([own[0]], Prefixes(len(template.vocab)), template, [facts])
    assert made.teacher_logprobs is not None
    for t in range(2, len(made.tokens)):
        assert made.teacher_logprobs[t, 0] == made.tokens[t - 1]
        assert made.teacher_logprobs[t, 1] == t + len(facts) + 1


def test_labels_fall_on_replies_that_end_in_a_call(template: Template, perform: Any, guessing: Any) -> None:
    def policy(state: Any, turn: int) -> Any:
        return "left@N <end>" if turn == 0 else guessing(state, turn)

    episode = perform(policy, [(4, 901)])[0]
    (made,) = softlabel_sequences([episode], Prefixes(len(template.vocab)), template, [["left@N"]])
    mask = [0] * len(made.tokens)
    for call in episode.calls:
        for i in range(len(call.output_ids)):
            mask[len(call.prompt_ids) + i] = int(call.kind == "call")
    assert made.kl_mask == mask
    assert 0 < sum(mask) < len(mask)


def test_episodes_that_teach_nothing_give_none(template: Template, perform: Any, guessing: Any) -> None:
    teacher = Prefixes(len(template.vocab))
    said = perform(lambda state, turn: "</think> <say> left@N <end>", [(1, 1)], label="s")[0]
    invalid, broken = perform(guessing, [(4, 950), (4, 951)], label="b")
    invalid.valid = False
    broken.calls[1].prompt_ids[0] += 1
    told = [["left@N"]] * 3
    assert softlabel_sequences([said, invalid, broken], teacher, template, told) == []


def test_without_facts_the_base_labels_itself(
    repository: Any, game: DipWheel, template: Template, own: list[Episode]
) -> None:
    """With real weights: KL to the own distribution is 0, with the facts it is not."""
    engine, _, _ = load_engine(repository / "prebuilt" / "dipwheel")
    last = own[1].calls[-1]
    tokens = last.prompt_ids + last.output_ids
    alone = engine.score([tokens])[0][:-1].numpy()
    (told,) = softlabel_sequences([own[1]], engine, template, [list(game.rules.facts())])
    assert told.teacher_logprobs is not None
    labels = told.teacher_logprobs[1:]
    assert np.allclose(np.exp(labels).sum(-1), 1.0, atol=1e-4)
    mask = np.array(told.kl_mask[1:], dtype=bool) if told.kl_mask else np.zeros(0, dtype=bool)
    kl = (np.exp(labels) * (labels - alone)).sum(-1)[mask]
    assert kl.min() > -1e-4
    assert kl.max() > 1.0


def test_only_softlabel_is_made_online() -> None:
    assert online({"type": "softlabel", "episodes": 48}) == {
        "episodes": 48,
    }
    assert online({"type": "recite", "harvest": "teacher"}) is None


@pytest.mark.parametrize("number", [0, 1])
def test_equal_episodes_get_equal_labels(game: DipWheel, template: Template, own: list[Episode], number: int) -> None:
    teacher = Prefixes(len(template.vocab))
    facts = list(game.rules.facts())
    (one,) = softlabel_sequences([own[number]], teacher, template, [facts])
    both = softlabel_sequences(own[:2], teacher, template, [facts, facts])[number]
    assert np.array_equal(one.teacher_logprobs, both.teacher_logprobs)  # type: ignore[arg-type]
