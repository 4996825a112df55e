from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.games.dipwheel import DipWheel, random_rules
from internalize.knowledge.atoms import Atom
from internalize.knowledge.bench import Bench
from internalize.knowledge.dipwheel import DipwheelLexicon
from internalize.knowledge.dsl import Judgement
from internalize.knowledge.verify import Verifier, replay

Claim = Callable[..., Atom]


def lit(value: bool) -> dict[str, Any]:
    return {"op": "eq", "probe": "lamp", "value": value}


def dial(value: int) -> dict[str, Any]:
    return {"op": "eq", "probe": "dial", "value": value}


STAYS = [{"op": "unchanged", "probe": "lamp"}]


def test_a_true_claim_is_verified(lamp: Any, claim: Claim) -> None:
    verdict = Verifier(lamp).verdict(claim(do=["press"], expect=[{"op": "changed", "probe": "lamp"}], null=STAYS))
    assert verdict.status == "verified"
    assert verdict.trials == verdict.counted == verdict.held == 20
    assert verdict.counterexample is None


def test_a_false_claim_is_refuted_by_acts_that_reproduce_it(lamp: Any, claim: Claim) -> None:
    atom = claim(do=["press"], expect=[lit(True)], null=STAYS)
    verdict = Verifier(lamp).verdict(atom)
    assert verdict.status == "refuted"
    assert verdict.counterexample is not None
    assert replay(Bench(lamp), atom.test, verdict.counterexample) is Judgement.FAILED
    true = claim(do=["press"], expect=[{"op": "changed", "probe": "lamp"}], null=STAYS)
    assert replay(Bench(lamp), true.test, verdict.counterexample) is Judgement.HELD


def test_a_counterexample_is_as_short_as_its_failure_allows(lamp: Any, claim: Claim) -> None:
    """`turn` never sets the dial to 1 unless it stood at 0; with nothing else needed, one act refutes it."""
    atom = claim(do=["turn"], expect=[dial(1)], random_actions=[3, 3])
    example = Verifier(lamp).verdict(atom).counterexample
    assert example is not None
    assert example.actions == ["turn"]
    assert example.setup_at == example.do_at == 0


def test_a_counterexample_keeps_the_acts_that_lead_to_its_precondition(lamp: Any, claim: Claim) -> None:
    atom = claim(pre=[dial(3), lit(False)], setup=["rest"], do=["turn"], expect=[dial(3)], random_actions=[0, 0])
    verdict = Verifier(lamp).verdict(atom)
    example = verdict.counterexample
    assert verdict.status == "refuted"
    assert example is not None
    assert example.actions[example.setup_at :] == ["rest", "turn"]
    assert example.setup_at >= 1
    assert replay(Bench(lamp), atom.test, example) is Judgement.FAILED
    cut = example.model_copy(
        update={"actions": example.actions[1:], "setup_at": example.setup_at - 1, "do_at": example.do_at - 1}
    )
    assert replay(Bench(lamp), atom.test, cut) is Judgement.INAPPLICABLE


def test_replay_accepts_only_the_acts_that_the_test_designs(lamp: Any, claim: Claim) -> None:
    atom = claim(do=["press"], expect=[lit(True)], null=STAYS)
    example = Verifier(lamp).verdict(atom).counterexample
    assert example is not None
    other = example.model_copy(update={"actions": [*example.actions[:-1], "rest"]})
    assert replay(Bench(lamp), atom.test, other) is Judgement.INAPPLICABLE


def test_a_false_claim_that_held_by_coincidence_gets_no_support(lamp: Any, claim: Claim) -> None:
    """`rest` does nothing; "`rest` lights the lamp" comes true wherever the lamp is lit anyway."""
    lights = {"do": ["rest"], "expect": [lit(True)]}
    blind = claim(pre=[lit(True)], **lights)
    assert Verifier(lamp).verdict(blind).status == "verified"  # a test without a null hypothesis believes it
    verdict = Verifier(lamp).verdict(claim(pre=[lit(True)], null=STAYS, **lights))
    assert verdict.status == "vacuous"
    assert verdict.counted == verdict.held == 0
    assert verdict.nondiscriminating == verdict.applicable == verdict.trials > 0
    anywhere = Verifier(lamp).verdict(claim(null=STAYS, **lights))
    assert anywhere.status == "refuted"
    assert anywhere.held == 0


def test_a_precondition_that_is_never_met_is_vacuous(lamp: Any, claim: Claim) -> None:
    verdict = Verifier(lamp).verdict(claim(pre=[dial(7)], do=["press"], expect=[lit(True)]))
    assert verdict.status == "vacuous"
    assert verdict.applicable == 0


def test_given_that_never_happens_is_vacuous(lamp: Any, claim: Claim) -> None:
    atom = claim(do=["rest"], given=[{"op": "changed", "probe": "lamp"}], expect=[lit(True)])
    assert Verifier(lamp).verdict(atom).status == "vacuous"


def test_too_few_counted_trials_are_vacuous(lamp: Any, claim: Claim) -> None:
    atom = claim(do=["press"], expect=[{"op": "changed", "probe": "lamp"}], null=STAYS)
    assert Verifier(lamp, trials=4, min_counted=5).verdict(atom).status == "vacuous"
    assert Verifier(lamp, trials=5, min_counted=5).verdict(atom).status == "verified"


def test_attacks_find_the_rare_state_that_breaks_a_claim(lamp: Any, claim: Claim) -> None:
    """`turn` clears the level from dial 2 with the lamp on, and from nowhere else."""
    atom = claim(do=["turn"], expect=[{"op": "unchanged", "probe": "cleared"}], random_actions=[0, 0])
    verdict = Verifier(lamp).verdict(atom)
    assert verdict.status == "refuted"


def test_one_of_steps_are_tried_all(lamp: Any, claim: Claim) -> None:
    atom = claim(do=[{"one_of": ["rest", "turn", "press"]}], expect=[{"op": "unchanged", "probe": "lamp"}])
    verdict = Verifier(lamp).verdict(atom)
    assert verdict.status == "refuted"
    assert verdict.counterexample is not None
    assert verdict.counterexample.actions[-1] == "press"


def test_a_failure_that_no_replay_reproduces_is_unstable(fickle_lamp: Any, claim: Claim) -> None:
    atom = claim(do=["press"], expect=[{"op": "changed", "probe": "lamp"}], null=STAYS, random_actions=[0, 0])
    verdict = Verifier(fickle_lamp).verdict(atom)
    assert verdict.status == "unstable"
    assert verdict.counted - verdict.held == 2
    assert verdict.counterexample is not None
    assert replay(Bench(fickle_lamp), atom.test, verdict.counterexample) is Judgement.HELD


def test_an_atom_whose_mutant_survives_is_weak(lamp: Any, claim: Claim) -> None:
    on_off = claim("bool", do=["press"], expect=[{"op": "in", "probe": "lamp", "values": [True, False]}])
    mutant = claim("mutant", do=["press"], expect=[{"op": "changed", "probe": "lamp"}])
    wrong = claim("wrong", do=["press"], expect=[{"op": "unchanged", "probe": "lamp"}])
    never = claim("never", pre=[dial(7)], do=["press"], expect=[lit(True)])
    verifier = Verifier(lamp)
    assert verifier.verdict(on_off).status == "verified"
    assert verifier.control(on_off, [wrong]).status == "verified"
    assert verifier.control(on_off, [wrong, mutant]).status == "weak"
    assert verifier.control(on_off, [wrong, mutant]).survivors == [mutant.id]
    assert verifier.control(on_off, [never]).status == "weak"
    assert verifier.control(on_off, []).status == "weak"
    assert verifier.control(wrong, [mutant]) == verifier.verdict(wrong)


@given(st.randoms(use_true_random=False), st.integers(0, 1000))
@settings(max_examples=12, deadline=None)
def test_of_all_single_facts_exactly_the_nine_true_ones_are_verified(random: Any, seed: int) -> None:
    game = DipWheel(random_rules(random))
    verifier = Verifier(game, seed=seed)
    facts = [atom for family in DipwheelLexicon(game).families() for atom in family.product() if atom.fact]
    assert len(facts) == 45
    verdicts = {atom.fact: (atom, verifier.verdict(atom)) for atom in facts}
    assert {fact for fact, (_, v) in verdicts.items() if v.status == "verified"} == set(game.rules.facts())
    for fact, (atom, verdict) in verdicts.items():
        if fact not in game.rules.facts():
            assert verdict.status == "refuted", fact
            assert verdict.counterexample is not None
            assert replay(Bench(DipWheel(game.rules)), atom.test, verdict.counterexample) is Judgement.FAILED


@pytest.mark.parametrize("order", [1, -1])
def test_verdicts_do_not_depend_on_what_was_tried_before(game: DipWheel, order: int) -> None:
    facts = [atom for family in DipwheelLexicon(game).families() for atom in family.product() if atom.fact]
    alone = {atom.id: Verifier(game).verdict(atom) for atom in facts[::9]}
    together = Verifier(game)
    assert alone == {atom.id: together.verdict(atom) for atom in facts[::order] if atom.id in alone}
