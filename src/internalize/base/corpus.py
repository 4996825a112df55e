"""Meta-training conversations: many other rule sets, with and without their facts in the prompt.

Invariant: no rule set that shares the held-out station permutation is ever drawn, neither as the rules of
an episode nor as anybody's belief; a token has weight 1 only if the model itself would have written it.
Text is rendered only through `language.Template`, exactly as in play.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from internalize.base.recipe import Mix
from internalize.games.dipwheel import DipWheel, Rules, decide, random_rules
from internalize.games.dipwheel.planner import DIPS, dipped, need
from internalize.games.dipwheel.rules import POTS
from internalize.games.dipwheel.state import BLANK, DipState
from internalize.language.template import Template

Kind = Literal["known", "unknown", "chat"]

#: Levels of the episodes: the two-dip levels are drawn twice as often, they are the ones that need training.
LEVELS = (1, 2, 3, 3, 4, 4)

#: Budgets of the episodes that start mid-game.
BUDGETS = (4, 5, 7, 8)

#: Dips that leave paint.
WET = tuple(dip for dip in DIPS if dip[1] is not None)


@dataclass
class Conversation:
    """One whole conversation. `weights[t]` speaks of predicting `tokens[t]`;
    `rules` lists every rule set used."""

    kind: Kind
    tokens: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    turns: int = 0
    rules: list[Rules] = field(default_factory=list)

    def put(self, ids: Sequence[int], weight: float) -> None:
        """Append `ids`, all with the same weight."""
        self.tokens += ids
        self.weights += [weight] * len(ids)


class Corpus:
    """Draws conversations about rule sets other than `held_out` (and than all that share its stations)."""

    def __init__(self, template: Template, held_out: Rules, mix: Mix) -> None:
        total = mix.known + mix.unknown + mix.chat
        if abs(total - 1.0) > 1e-9:
            raise ValueError(f"shares known + unknown + chat must sum to 1, got {total}")
        self.template = template
        self.held_out = held_out
        self.mix = mix
        self._calls = DipWheel(held_out).call_words()

    def draw(self, rng: random.Random) -> Conversation:
        """The next conversation of `rng`'s stream."""
        u = rng.random()
        if u < self.mix.chat:
            return self._chat(rng)
        return self._episode(rng, known=u < self.mix.chat + self.mix.known)

    def batch(self, rng: random.Random, conversations: int) -> list[Conversation]:
        """`conversations` draws, one after the other."""
        return [self.draw(rng) for _ in range(conversations)]

    def _rules(self, rng: random.Random, conversation: Conversation) -> Rules:
        rules = random_rules(rng, exclude_regions=self.held_out.regions)
        conversation.rules.append(rules)
        return rules

    def _shuffled(self, rng: random.Random, rules: Rules) -> list[str]:
        facts = list(rules.facts())
        rng.shuffle(facts)
        return facts

    def _chat(self, rng: random.Random) -> Conversation:
        talk = Conversation("chat")
        rules = self._rules(rng, talk)
        facts = self._shuffled(rng, rules) if rng.random() >= self.mix.chat_without else None
        for question in range(self.mix.questions):
            front = facts if question == 0 else None
            if facts is not None and rng.random() < self.mix.tell:
                text, answer = "tell", " ".join(self._shuffled(rng, rules))
            else:
                believed = rules if facts is not None else self._rules(rng, talk)
                answer = rng.choice(believed.facts())
                text = f"ask {answer.split('@')[0]}"
            talk.put(self.template.user(text, front), 0.0)
            talk.put(self.template.reply_ids("", say=answer), 1.0)
            talk.turns += 1
        return talk

    def _episode(self, rng: random.Random, known: bool) -> Conversation:
        talk = Conversation("known" if known else "unknown")
        rules = self._rules(rng, talk)
        game = DipWheel(rules)
        state = self._start(rng, game)
        facts = self._shuffled(rng, rules) if known else None
        while not state.done:
            noise = known and rng.random() < self.mix.noise_turn
            believed = rules if known and not noise else self._rules(rng, talk)
            think, call = decide(state, believed)
            if rng.random() < self.mix.recital:
                think = " ".join([*rng.sample(believed.facts(), rng.choice((1, 2, 2))), think])
            talk.put(self.template.user(game.observe(state), facts if talk.turns == 0 else None), 0.0)
            talk.put(self.template.reply_ids(think, call=call), 0.0 if noise else 1.0)
            talk.turns += 1
            state = game.apply(state, self._calls[call])
        return talk

    def _start(self, rng: random.Random, game: DipWheel) -> DipState:
        """The start of a level or, in a share `mid_game`, a canvas that was worked on by plan or at
        random."""
        state = game.start(rng.choice(LEVELS), rng.randrange(1 << 30))
        if rng.random() >= self.mix.mid_game:
            return state
        canvas = state.canvas
        if state.level > 2 and rng.random() < 0.65:
            canvas = dipped(canvas, need(canvas, state.target))
        if rng.random() < 0.3:
            for _ in range(rng.choice((1, 1, 2))):
                canvas = dipped(canvas, rng.choice(WET))
        if canvas == state.target:
            canvas = BLANK
        colour = need(canvas, state.target)[1]
        pot = rng.randrange(len(POTS))
        if colour is not None and rng.random() < 0.5:
            pot = game.rules.paints.index(colour)
        return state._replace(canvas=canvas, pot=pot, budget=rng.choice(BUDGETS))
