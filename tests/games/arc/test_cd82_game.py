"""The real cd82, when the user has it: CD82_FILE names the file."""

from __future__ import annotations

import hashlib
import random

from internalize.games.arc.game import ArcGame

OPTIMUM = [5, 6, 16, 13, 13, 16]


def test_the_optimum_path_of_69_actions_wins(cd82: ArcGame) -> None:
    lengths = []
    for level in cd82.levels:
        state = cd82.start(level, 0)
        plan = cd82.plan(state)
        for action in plan:
            assert not state.done
            state = cd82.apply(state, action)
        assert state.cleared
        lengths.append(len(plan))
    assert (lengths, sum(lengths)) == (OPTIMUM, 69)


def test_ninety_nine_acts_can_be_used(cd82: ArcGame) -> None:
    state = cd82.start(3, 0)
    for _ in range(99):
        assert not state.done
        state = cd82.apply(state, cd82.call_words()["left"])
    assert (state.done, state.dead) == (True, False)
    assert cd82._taken((3, 0, state.moves)).act(1).dead


def test_probes_follow_the_tool_around_the_ring(cd82: ArcGame) -> None:
    state = cd82.start(4, 0)
    seen = []
    for word in ("right", "down", "down", "left", "left", "up", "up", "right"):
        state = cd82.apply(state, cd82.call_words()[word])
        probes = cd82.probes(state)
        seen.append((probes["station"], probes["paint"], probes["small"]))
    assert [station for station, _, _ in seen] == ["NE", "E", "SE", "S", "SW", "W", "NW", "N"]
    assert {paint for _, paint, _ in seen} == {15}
    assert [small for _, _, small in seen] == [False, True] * 4


def test_cd82_is_the_same_everywhere(cd82: ArcGame) -> None:
    rng, digest = random.Random(0), hashlib.sha256()
    actions = list(cd82.call_words().values())
    for episode in range(10):
        state = cd82.start(episode % 6 + 1, 0)
        while not state.done:
            state = cd82.apply(state, rng.choice(actions))
            digest.update(state.frame)
    assert digest.hexdigest()[:16] == "87aba390279a0e98"


def test_the_text_is_short(cd82: ArcGame) -> None:
    lines = cd82.observe(cd82.start(1, 0)).splitlines()[1:]
    assert len(lines) <= 30
    assert len("\n".join(lines)) <= 720
