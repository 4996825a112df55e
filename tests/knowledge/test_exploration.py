from __future__ import annotations

from typing import Any

from internalize.games.dipwheel import DipWheel
from internalize.knowledge.bench import Bench
from internalize.knowledge.dsl import Judgement, judge, satisfied
from internalize.knowledge.exploration import Explorer, explore
from internalize.knowledge.verify import Verifier


def test_exploration_plays_legal_episodes_to_their_end_and_repeats_itself(game: DipWheel) -> None:
    steps = explore(Bench(game), 12, seed=3)
    assert steps == explore(Bench(game), 12, seed=3)
    assert steps != explore(Bench(game), 12, seed=4)
    state: Any = None
    for step in steps:
        if not step.before.actions:
            assert state is None or state.done
            state = game.start(step.before.level, step.before.seed)
        assert step.before.state == state
        state = game.apply(state, game.call_words()[step.word])
        assert step.after.state == state
    assert state.done
    assert {step.before.level for step in steps} == set(game.levels)


def test_proposals_are_contradicted_by_nothing_that_was_seen(game: DipWheel) -> None:
    steps = explore(Bench(game), 60, seed=0)
    proposals = Explorer(Bench(game), steps).proposals()
    assert {atom.family for atom in proposals} == {
        *("leaves", "again", "sets", "shifts", "starts", "deadline", "implies", "always"),
    }
    checked = 0
    for atom in proposals:
        for step in steps:
            if atom.test.setup or step.before.level not in atom.scope.levels:
                continue
            if atom.test.do == [step.word] and satisfied(atom.test.pre, step.before.probes):
                assert judge(atom.test, step.before.probes, step.after.probes) is not Judgement.FAILED, atom.claim
                checked += 1
            if not atom.test.do and satisfied(atom.test.pre, step.after.probes):
                assert judge(atom.test, step.after.probes, step.after.probes) is not Judgement.FAILED, atom.claim
                checked += 1
    assert checked > 1000


def test_little_play_proposes_what_trials_refute(game: DipWheel) -> None:
    bench = Bench(game)
    proposals = Explorer(bench, explore(bench, 12, seed=1)).proposals()
    verifier = Verifier(game)
    statuses = [verifier.verdict(atom).status for atom in proposals]
    assert statuses.count("refuted") >= 5
    assert statuses.count("verified") >= 30


def test_mutants_of_proposals_contradict_them(game: DipWheel) -> None:
    bench = Bench(game)
    explorer = Explorer(bench, explore(bench, 60, seed=0))
    families = {family.name: family for family in explorer.families()}
    for atom in explorer.proposals():
        mutants = families[atom.family].mutants(atom)
        assert mutants, atom.claim
        for mutant in mutants:
            assert mutant.hash != atom.hash
            assert mutant.test.do == atom.test.do
            assert mutant.test.pre == atom.test.pre


def test_exploration_of_another_game_needs_nothing_but_its_probes(lamp: Any) -> None:
    bench = Bench(lamp)
    verifier = Verifier(lamp)
    claims = {atom.claim: verifier.verdict(atom).status for atom in Explorer(bench, explore(bench, 40, 0)).proposals()}
    assert claims["rest never changes lamp."] == "verified"
    assert claims["turn never changes lamp."] == "verified"
    assert claims["press never changes dial."] == "verified"
    assert claims["rest never changes cleared."] == "verified"
    assert claims["Level 1 is over after 8 acts."] == "verified"
    assert claims["Whenever cleared, also lamp."] == "verified"
    assert "press never changes lamp." not in claims
