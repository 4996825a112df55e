"""The bench on which claims are tried: fresh games, random contexts, and walks into a precondition.

Invariant: a state on the bench was reached from a level's start by legal acts alone, and its act list
reproduces it; contexts depend on (bench seed, level, trial) only, so all claims meet the same situations.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from internalize.errors import UserError
from internalize.games.protocol import Game
from internalize.knowledge.dsl import Experiment, distance, satisfied
from internalize.knowledge.ops import Probes
from internalize.seeds import derive, rng

#: Starts that are looked at, for one trial, before a level is said to have none that fits.
START_TRIES = 60

#: States that one walk into a precondition may visit.
MAX_NODES = 150

#: States that one attack may visit.
MAX_ATTACK_NODES = 20


#: What a walk is for: the nearest state in the precondition, or many of them, near by (`around`) or near the
#: goal.
Aim = Literal["nearest", "around", "goal"]


@dataclass(frozen=True)
class Spot:
    """A state and how it was reached."""

    level: int
    seed: int
    actions: tuple[str, ...]
    state: Any
    probes: Probes


class Bench:
    """One game, its call words and caches of starts and contexts."""

    def __init__(self, game: Game, seed: int = 0) -> None:
        self.game = game
        self.seed = seed
        self.calls = dict(game.call_words())
        self.words = tuple(self.calls)
        self._hud = game.hud_rows
        self._starts: dict[tuple[int, int], Spot] = {}
        self._contexts: dict[tuple[Any, ...], Spot] = {}

    def probes(self, state: Any) -> Probes:
        """The game's probes and what every state has: level, budget, acts, done."""
        common = {"level": state.level, "budget": state.budget, "acts": state.acts, "done": state.done}
        return {**common, **self.game.probes(state)}

    def start(self, level: int, seed: int) -> Spot:
        """The first state of (level, seed)."""
        spot = self._starts.get((level, seed))
        if spot is None:
            state = self.game.start(level, seed)
            spot = self._starts[level, seed] = Spot(level, seed, (), state, self.probes(state))
        return spot

    def step(self, spot: Spot, word: str) -> Spot | None:
        """The spot after one call; None if the game refuses it. UserError for a word that is no call."""
        return self.walk(spot, (word,))

    def walk(self, spot: Spot | None, words: Sequence[str]) -> Spot | None:
        """The spot after several calls; None if there is no spot or as soon as a call is refused."""
        if spot is None or not words:
            return spot
        state = spot.state
        for word in words:
            action = self.calls.get(word)
            if action is None:
                raise UserError(
                    "a claim uses a call that the game does not have", got=word, expected=" ".join(self.words)
                )
            if self.game.refuse(state, action) is not None:
                return None
            state = self.game.apply(state, action)
        return Spot(spot.level, spot.seed, (*spot.actions, *words), state, self.probes(state))

    def context(self, test: Experiment, level: int, index: int) -> Spot | None:
        """Where trial `index` begins: a fitting start and some random acts that don't end the episode.

        None if none of `START_TRIES` starts satisfies `test.start`.
        """
        start = self._fitting(test, level, index)
        if start is None:
            return None
        low, high = test.random_actions
        key = (level, start.seed, index, low, high)
        if key not in self._contexts:
            draw = rng("knowledge", self.seed, "context", level, index, low, high)
            self._contexts[key] = self._wander(start, draw.randint(low, high), draw)
        return self._contexts[key]

    def reach(self, spot: Spot, test: Experiment, draw: random.Random, aim: Aim) -> Iterator[Spot]:
        """Spots near `spot` that satisfy `test.pre`, the closest first, within `max_walk` acts.

        Best first by the distance from the precondition. `goal` prefers, among equals, states closer to the
        game's goal: that is where claims about endings break.
        """
        reads = sorted(test.reads())
        ends_allowed = not (test.setup or test.do)
        queue: list[tuple[float, float, int, int, Spot]] = []
        seen: set[Any] = set()

        def put(at: Spot, depth: int) -> bool:
            """Queues a new state; true if it satisfies the precondition and may be handed out at once."""
            key = self._picture(at, reads)
            if key in seen or (at.state.done and not ends_allowed):
                return False
            seen.add(key)
            far = distance(test.pre, at.probes)
            goal = -self.game.progress(at.state) if aim == "goal" else 0.0
            heapq.heappush(queue, (far, goal, depth, len(seen), at))
            return far == 0.0 and aim != "goal"

        if put(spot, 0):
            yield spot
        visited = 0
        limit = MAX_NODES if aim == "nearest" else MAX_ATTACK_NODES
        while queue and (visited < limit or (queue[0][0] > 0.0 and visited < MAX_NODES)):
            far, _, depth, _, at = heapq.heappop(queue)
            visited += 1
            if far == 0.0 and aim == "goal":
                yield at
            if depth < test.max_walk and not at.state.done:
                for word in draw.sample(self.words, len(self.words)):
                    after = self.step(at, word)
                    if after is not None and put(after, depth + 1):
                        yield after

    def _fitting(self, test: Experiment, level: int, index: int) -> Spot | None:
        tries = START_TRIES if test.start else 1
        for attempt in range(tries):
            seed = derive("knowledge", self.seed, "start", index * START_TRIES + attempt) % (1 << 30)
            spot = self.start(level, seed)
            if satisfied(test.start, spot.probes):
                return spot
        return None

    def _wander(self, spot: Spot, acts: int, draw: random.Random) -> Spot:
        for _ in range(acts):
            after = self.step(spot, draw.choice(self.words))
            if after is not None and not after.state.done:
                spot = after
        return spot

    def _picture(self, spot: Spot, reads: list[str]) -> Any:
        """What makes two spots the same for a search: the screen without counters, and the probes it looks
        at."""
        frame = self.game.frame(spot.state)
        world = tuple(row for index, row in enumerate(frame) if index not in self._hud)
        return world, repr([spot.probes.get(name) for name in reads])
