"""Knowledge probes: exact NLLs, matched false facts, splits, and closed-book questions."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Completion
from internalize.evals.probes import (
    STATES_PER_FACT,
    Facts,
    Probe,
    ProbeSet,
    falsified,
    place_of,
    play_probes,
    recall_probes,
    score,
    subject_of,
    summarise,
)
from internalize.knowledge.dipwheel import DipwheelLexicon
from internalize.knowledge.dipwheel.forms import forms
from internalize.language.sayings import make_sayings
from internalize.language.template import Template

HELD_OUT = ("wipe@S",)


@pytest.fixture(scope="module")
def template(game) -> Template:
    return Template.of(game)


@pytest.fixture(scope="module")
def facts(game, template) -> Facts:
    return Facts.of(game.rules.facts(), HELD_OUT, make_sayings(DipwheelLexicon(game).sayings()), seed=5)


@pytest.fixture(scope="module")
def recall(game) -> list[dict[str, Any]]:
    rows = []
    for fact in game.rules.facts():
        atom = SimpleNamespace(fact=fact)
        rows += [form.model_dump(mode="json") for form in forms(atom)]  # type: ignore[arg-type]
    claim = {"form": "claimform", "wording": "think", "fact": None}
    rows += [
        {**claim, "prompt": "claim left@N", "answer": "true", "label": True, "fact": "left@N"},
        {**claim, "prompt": "claim red at b", "answer": "true", "label": True, "fact": "red@b"},
        {**claim, "prompt": "claim left@S", "answer": "false", "label": False},
        {**claim, "prompt": "claim pot:b dip:N is left red", "answer": "true", "label": True},  # no play fact
        {
            "form": "qa",
            "wording": "other",
            "prompt": "ask pot:b dip:N",
            "answer": "left red",
            "label": None,
            "fact": None,
        },
        {
            "form": "declarative",
            "wording": "think",
            "prompt": "",
            "answer": "Long.",
            "expressible": False,
            "fact": None,
        },
    ]
    return rows


@pytest.fixture(scope="module")
def probes(game, template, facts, recall) -> ProbeSet:
    return ProbeSet(game, template, facts, recall, seed=5)


@pytest.fixture(scope="module")
def engine(torch_state) -> LocalEngine:
    config, state = torch_state
    made = LocalEngine(config, slots=8, max_len=64)
    made.update_weights(state, "random")
    return made


def test_false_facts_share_the_subject_and_are_words(game, template, facts):
    assert set(facts.false) == set(game.rules.facts())
    for fact, false in facts.false.items():
        assert subject_of(fact) == subject_of(false)
        assert place_of(fact) != place_of(false)
        assert false in template.vocab
    assert len(facts.rivals["left@N"]) == 5
    assert len(facts.rivals["red@b"]) == 2


def test_scores_are_the_engines_own(probes, engine):
    """Each NLL is the sum of the token log-probs of prefix + answer, one sequence at a time."""
    nlls = score(engine, probes.probes)
    for at in range(0, len(probes.probes), 7):
        probe = probes.probes[at]
        for answer, nll in zip((probe.true, probe.false), nlls[at], strict=True):
            whole = engine.token_logprobs([[*probe.prefix, *answer]])[0]
            assert nll == pytest.approx(-sum(whole[len(probe.prefix) :]), abs=1e-4)


def test_play_probes_stand_where_play_needs_the_fact(game, template, facts, probes):
    play = [probe for probe in probes.probes if probe.form == "play"]
    counts = {fact: sum(probe.fact == fact for probe in play) for fact in facts.true}
    assert counts.pop("trap@NE") == 0  # nobody ever needs a trap
    assert set(counts.values()) == {STATES_PER_FACT}
    for probe in play:
        text = template.vocab.decode(probe.prefix)
        think = text.split("<a> ")[1].split()
        assert think[0] == "need"
        assert subject_of(probe.fact) in think[1:3]
        assert probe.fact not in think
        assert template.vocab.decode(probe.true) == probe.fact
        if probe.fact in ("red@b", "blue@a", "green@c"):
            assert think[3] == game.rules.fact(think[1])  # the region's true fact stands before the colour's
    assert play_probes(game, template, facts, 5) == play  # seeded


def test_recall_probes_by_form(template, facts, recall):
    probes = recall_probes(template, facts, recall)
    by_form = {form: sum(p.form == form for p in probes) for form in {p.form for p in probes}}
    expected = dict.fromkeys(("qa", "other", "reverse", "cloze", "paraphrase"), 9) | {
        "claim_true": 2,
        "claim_false": 1,
    }
    assert by_form == expected  # the declarative row in the wording of thinks is the qa row: once
    texts = {
        p.form: [template.vocab.decode(ids) for ids in (p.prefix, p.true, p.false)]
        for p in probes
        if p.fact == "left@N"
    }
    false = place_of(facts.false["left@N"])
    assert texts["qa"] == ["<u> ask left <a> </think> <say>", "left@N", f"left@{false}"]
    assert texts["other"][1:] == ["left at N", f"left at {false}"]
    assert texts["paraphrase"][1:] == ["at N is left", f"at {false} is left"]
    assert texts["cloze"] == ["<u> blank left at <a> </think> <say>", "N", false]
    assert texts["reverse"][0].startswith("<u> ask N <a>")
    assert texts["reverse"][2] != "left at N"
    assert texts["reverse"][2].endswith(" at N")
    assert texts["claim_true"][1:] == ["true", "false"]
    assert texts["claim_false"] == ["<u> claim left@S <a> </think> <say>", "false", "true"]
    assert all(p.held_out == (p.fact in HELD_OUT) for p in probes)


def test_falsified_keeps_everything_else(facts):
    assert falsified("at N is left", "ask left", "left@N", facts).split()[::3] == ["at", "left"]
    assert falsified("left@N", "tell", "left@N", facts) == facts.false["left@N"]


def test_summary_by_hand():
    def probe(form, fact, held, answer):
        return Probe(form, fact, held, (1, 2), answer, answer)

    chosen = [
        probe("play", "left@N", False, (3,)),
        probe("play", "left@N", False, (3,)),
        probe("play", "wipe@S", True, (3,)),
        probe("other", "left@N", False, (3, 4, 5)),
    ]
    metrics = summarise(chosen, [(0.2, 2.0), (0.4, 0.1), (3.0, 4.0), (6.0, 9.0)])
    assert metrics["nll_play"] == pytest.approx(3.6 / 3)
    assert metrics["nll_play_false"] == pytest.approx(6.1 / 3)
    assert metrics["nll_play_trained"] == pytest.approx(0.3)
    assert metrics["nll_play_held_out"] == pytest.approx(3.0)
    assert metrics["margin_play"] == pytest.approx((1.8 - 0.3 + 1.0) / 3)
    assert metrics["margin_play_held_out"] == pytest.approx(1.0)
    assert metrics["acc_play"] == pytest.approx(2 / 3)
    assert metrics["known_play"] == pytest.approx(1 / 2)  # left@N: mean 0.3 < ln 2
    assert metrics["nll_other"] == pytest.approx(2.0)  # per token
    assert metrics["margin_other"] == pytest.approx(3.0)  # per fact
    assert metrics["nll_other_held_out"] is None


class Oracle:
    """An engine that knows some facts: probability 0.9 for the true fact word after its subject was asked,
    and so on."""

    slots = 4

    def __init__(self, template: Template, answers: dict[str, str]) -> None:
        self.template, self.answers = template, answers

    def generate(self, prompts, sessions, rngs, sampling):
        assert sampling.temperature == 0.0
        out = []
        for prompt in prompts:
            question = self.template.vocab.decode(prompt[1:-1])
            ids = self.template.reply_ids(**self.reply(question))
            out.append(Completion(ids, [0.0] * len(ids), "stop", "oracle", 0))
        return out

    def reply(self, question: str) -> dict[str, str]:
        answer = self.answers.get(question.split()[1], "left@S")
        return {"think": answer, "call": "look"} if answer == "red@b" else {"think": "", "say": answer}

    def release(self, sessions) -> None:
        pass


def test_closed_book_questions(probes, template):
    """Right in either wording; a fact in a think that ends in a call is stated but is no answer."""
    known = {"left": "left@N", "right": "right at SW", "red": "red@b", "wipe": "wipe@S", "N": "left at N"}
    metrics = probes._ask(Oracle(template, known))  # type: ignore[arg-type]
    assert metrics["qa_questions"] == 9
    assert metrics["qa_accuracy"] == pytest.approx(3 / 9)
    assert metrics["qa_accuracy_held_out"] == 1.0
    assert metrics["qa_accuracy_trained"] == pytest.approx(2 / 8)
    assert metrics["qa_accuracy_reverse"] == pytest.approx(1 / 9)
    assert metrics["qa_text_share"] == pytest.approx(8 / 9)
    assert metrics["qa_stated_share"] == pytest.approx(3 / 9)  # left, red, wipe as one word


def test_measuring_twice_gives_the_same(probes, engine):
    first = probes.measure(engine)
    assert first == probes.measure(engine)
    assert np.isfinite([value for value in first.values() if value is not None]).all()
    assert first["nll_top"] > math.log(2)  # random weights know nothing


def test_no_probe_has_knowledge_in_its_prompt(probes, template):
    know = template.vocab.id("know")
    assert not any(know in probe.prefix for probe in probes.probes)
