"""Episodes cut into turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from internalize.errors import CorruptPayload
from internalize.games.dipwheel import DipWheel, Rules
from internalize.harness.episode import Episode
from internalize.language.template import Template
from internalize.rows.talk import Talk, talk_of


def joined(talk: Talk) -> list[int]:
    return [token for turn in talk.turns for token in turn.user + turn.reply]


def test_turns_joined_are_the_episode(game: DipWheel, template: Template, own: list[Episode]) -> None:
    for episode in own:
        last = episode.calls[-1]
        assert joined(talk_of(episode, game, template, knowledge=False)) == last.prompt_ids + last.output_ids


def test_only_the_first_turn_loses_the_knowledge(game: DipWheel, template: Template, teacher: list[Episode]) -> None:
    for episode in teacher:
        last = episode.calls[-1]
        whole = joined(talk_of(episode, game, template, knowledge=True))
        bare = joined(talk_of(episode, game, template, knowledge=False))
        assert whole == last.prompt_ids + last.output_ids
        assert bare == whole[:1] + whole[11:]
        assert template.vocab.id("know") not in bare


def test_a_turn_says_what_the_game_shows(game: DipWheel, template: Template, teacher: list[Episode]) -> None:
    for episode in teacher:
        state = game.start(episode.plan.level, episode.plan.seed)
        for turn in talk_of(episode, game, template, knowledge=False).turns:
            assert turn.text == game.observe(state)
            state = game.apply(state, game.call_words()[turn.call or ""])


def test_an_episode_of_another_game_is_refused(template: Template, teacher: list[Episode]) -> None:
    episode = next(e for e in teacher if e.plan.level == 2)
    moved: Any = replace(episode, plan=replace(episode.plan, seed=episode.plan.seed + 7))
    with pytest.raises(CorruptPayload) as error:
        talk_of(
            moved,
            DipWheel(Rules(("left", "trap", "top", "wipe", "right", "bottom"), ("red", "green", "blue"))),
            template,
            knowledge=False,
        )
    assert episode.plan.id in error.value.where
