"""Steps per CPU second of the bundled game. Not a test: run `python benchmarks/game.py` on an idle core.

`apply` alone must stay above 100 000 a CPU second; a session step adds frame, diff and journal row.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from internalize.games.dipwheel import DipWheel, random_rules
from internalize.games.session import GameSession
from internalize.language.calls import bundled


def applied(game: DipWheel, rng: random.Random, steps: int) -> int:
    """Random play by `apply` on whole episodes of all levels; returns the steps made."""
    actions = list(game.call_words().values())
    starts = [game.start(level, seed) for level in game.levels for seed in range(50)]
    done = 0
    while done < steps:
        state = starts[done % len(starts)]
        while not state.done:
            state = game.apply(state, actions[int(rng.random() * len(actions))])
            done += 1
    return done


def tool_calls(game: DipWheel, rng: random.Random, steps: int) -> int:
    """The same through `GameSession.call`; returns the calls made."""
    calls = [bundled().expand(word) for word in bundled().words]
    done = 0
    while done < steps:
        session = GameSession(game, 1 + done % 4, done)
        while not session.done:
            call = rng.choice(calls)
            session.call(call.tool, call.arguments())
            done += 1
    return done


def rate(play: Callable[[DipWheel, random.Random, int], int], steps: int) -> float:
    """Steps per CPU second of `play`."""
    rng = random.Random(0)
    game = DipWheel(random_rules(rng))
    play(game, rng, steps // 10)
    began = time.process_time()
    made = play(game, rng, steps)
    return made / (time.process_time() - began)


if __name__ == "__main__":
    print(f"apply      {rate(applied, 300_000):>12,.0f} steps per CPU second")
    print(f"tool calls {rate(tool_calls, 20_000):>12,.0f} steps per CPU second")
