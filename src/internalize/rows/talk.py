"""An episode cut into turns: what the model read and what it wrote, as token ids.

Invariant: joining the turns of a talk gives the episode's tokens exactly as the engine saw them, except
that the knowledge is gone from the first user turn when it is asked for that.
"""

from __future__ import annotations

from dataclasses import dataclass

from internalize.errors import CorruptPayload
from internalize.games.protocol import Game
from internalize.harness.episode import Episode, ReplyKind
from internalize.language.dialogue import Dialogue


@dataclass(frozen=True)
class Turn:
    """One user turn and the reply to it."""

    index: int
    user: list[int]
    reply: list[int]
    kind: ReplyKind
    think: str
    call: str | None
    text: str
    """What the user turn says, knowledge aside: an observation."""


@dataclass(frozen=True)
class Talk:
    """All turns of one episode."""

    episode: str
    level: int
    seed: int
    turns: list[Turn]


def talk_of(episode: Episode, game: Game, template: Dialogue, *, knowledge: bool) -> Talk:
    """Cut a prefix-extending episode into turns.

    Args:
        knowledge: keep the facts of the first user turn; False renders that turn without them.

    Raises:
        CorruptPayload: the first prompt is not the game's first observation, with or without facts in
            front.
    """
    turns = []
    read = 0
    text = game.observe(game.start(episode.plan.level, episode.plan.seed))
    for call in episode.calls:
        user = call.prompt_ids[read:]
        if call.index == 0:
            bare = template.user(text)
            if template.read_user(user)[0] != text:
                raise CorruptPayload(
                    "the first prompt does not end in the game's first observation",
                    where=f"episode {episode.plan.id}",
                    expected=template.decode(bare),
                    got=template.decode(user),
                    fix="the harvest was played with another game or template: run it again",
                )
            user = user if knowledge else bare
        turns.append(Turn(call.index, user, call.output_ids, call.kind, call.think, call.call_word, text))
        read = len(call.prompt_ids) + len(call.output_ids)
        text = call.observation
    return Talk(episode.plan.id, episode.plan.level, episode.plan.seed, turns)
