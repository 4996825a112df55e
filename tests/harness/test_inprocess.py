from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.engine.faults import EngineDiedError
from internalize.engine.local import LocalEngine
from internalize.engine.protocol import SamplingParams
from internalize.errors import UserError
from internalize.games.protocol import Game
from internalize.games.shaping import ShapingWeights, shaped_return
from internalize.harness.episode import Episode, EpisodePlan
from internalize.harness.inprocess import InProcess, play
from internalize.harness.protocol import Harness
from internalize.language.template import Template
from internalize.records import JournalRow
from internalize.seeds import np_rng

MakeEngine = Callable[..., LocalEngine]


def _plans(count: int, level: int = 1) -> list[EpisodePlan]:
    return [EpisodePlan(f"e{i}", 1 + (level - 1 + i) % 4, 1000 + i, i, 0) for i in range(count)]


def _optimal(game: Game, template: Template, plan: EpisodePlan) -> list[list[int]]:
    """Replies of a player who knows the rules."""
    state, replies = game.start(plan.level, plan.seed), []
    while not state.done:
        advice = game.advice(state)
        replies.append(template.reply_ids("need " + " ".join(advice.facts), call=advice.call))
        state = game.apply(state, game.call_words()[advice.call])
    return replies


def _run(engine: Any, game: Game, template: Template, plans: list[EpisodePlan], **more: Any) -> list[Episode]:
    sampling = SamplingParams(max_new_tokens=16, stop_ids=(template.stop_id,))
    return play(engine, game, template, plans, **{"sampling": sampling, "seed_key": ("test",), **more})


# ---- with a model ---


def test_prompts_are_chained_exactly(game: Game, template: Template, random_engine: MakeEngine) -> None:
    episodes = _run(random_engine(), game, template, _plans(16))
    assert sum(len(e.calls) for e in episodes) > 32
    for episode in episodes:
        assert episode.prefix_extending
        for first, later in zip(episode.calls, episode.calls[1:], strict=False):
            held = first.prompt_ids + first.output_ids
            assert later.prompt_ids == held + template.user(first.observation)
        for call in episode.calls:
            reply = template.parse(call.output_ids)
            assert (call.think, call.kind, call.call_word, call.say) == tuple(reply)


def test_logprobs_equal_one_packed_scoring(game: Game, template: Template, random_engine: MakeEngine) -> None:
    engine = random_engine()
    episodes = _run(engine, game, template, _plans(12))
    packed = [e.calls[-1].prompt_ids + e.calls[-1].output_ids for e in episodes]
    for episode, scored in zip(episodes, engine.token_logprobs(packed), strict=True):
        for call in episode.calls:
            start = len(call.prompt_ids)
            again = scored[start : start + len(call.output_ids)]
            assert np.abs(np.array(again) - call.logprobs).max() < 1e-5


def test_deterministic_and_independent_of_company(game: Game, template: Template, random_engine: MakeEngine) -> None:
    plans = _plans(9)
    one, two = (_run(random_engine(), game, template, plans) for _ in range(2))
    assert one == two
    few = _run(random_engine(slots=2), game, template, plans)
    alone = [_run(random_engine(), game, template, [plan])[0] for plan in plans]
    for episode, other, single in zip(one, few, alone, strict=True):
        ids = [c.output_ids for c in episode.calls]
        assert ids == [c.output_ids for c in other.calls] == [c.output_ids for c in single.calls]
        assert episode.outcome == other.outcome == single.outcome


def test_seed_key_changes_the_draws(game: Game, template: Template, random_engine: MakeEngine) -> None:
    one, two = (_run(random_engine(), game, template, _plans(4), seed_key=("test", k)) for k in range(2))
    assert [e.calls[0].prompt_ids for e in one] == [e.calls[0].prompt_ids for e in two]
    assert [e.calls[0].output_ids for e in one] != [e.calls[0].output_ids for e in two]


def test_no_session_is_left_behind(game: Game, template: Template, random_engine: MakeEngine) -> None:
    engine = random_engine()
    first = _run(engine, game, template, _plans(3))
    second = _run(engine, game, template, _plans(3))
    assert [c.cached_tokens for e in second for c in e.calls] == [c.cached_tokens for e in first for c in e.calls]
    assert all(e.calls[0].cached_tokens == 0 for e in second)


# ---- with a script ---


def test_optimal_replies_clear_every_level(game: Game, template: Template, scripted: Any) -> None:
    plans = _plans(16)
    engine = scripted({p.id: _optimal(game, template, p) for p in plans}, slots=5)
    episodes = _run(engine, game, template, plans)
    assert [e.plan for e in episodes] == plans
    assert all(e.outcome.cleared and e.valid and e.reason is None for e in episodes)
    assert engine.most == 5
    assert engine.held == set()
    for plan, episode in zip(plans, episodes, strict=True):
        assert engine.prompts[plan.id] == [c.prompt_ids for c in episode.calls]
        assert len(episode.calls) == len(game.plan(game.start(plan.level, plan.seed)))
        assert [JournalRow.model_validate(row).tool for row in episode.journal] == ["act"] * len(episode.calls)
        assert [row["result"]["observation"] for row in episode.journal] == [c.observation for c in episode.calls]


def test_shaped_return_is_the_outcomes(game: Game, template: Template, random_engine: MakeEngine) -> None:
    weights = ShapingWeights(act=0.03, invalid=0.07)
    for episode in _run(random_engine(), game, template, _plans(8), shaping=weights):
        expected = shaped_return(episode.outcome, weights)
        assert episode.returned == expected.pop("return")
        assert episode.components == expected
        assert episode.returned == pytest.approx(sum(episode.components.values()))


def test_text_answer_ends_the_episode(game: Game, template: Template, scripted: Any) -> None:
    (plan,) = _plans(1)
    look, say = template.reply_ids("", call="look"), template.reply_ids("need left", say="left@N")
    (episode,) = _run(scripted({plan.id: [look, say]}), game, template, [plan])
    assert episode.outcome.text_end
    assert not episode.outcome.cleared
    assert episode.valid
    last = episode.calls[-1]
    assert (last.kind, last.say, last.call_word, last.observation) == ("say", "left@N", None, "")
    assert [row["tool"] for row in episode.journal] == ["look"]


def test_bad_replies_cost_an_act_and_repeat_the_observation(game: Game, template: Template, scripted: Any) -> None:
    plan = EpisodePlan("e0", 3, 5, 0, 0)
    stop, word = template.stop_id, template.vocab.id("dip:N")
    bad = [[stop], [word, stop], template.vocab.encode("need need need")]
    (episode,) = _run(scripted({plan.id: bad}), game, template, [plan])
    start = game.start(plan.level, plan.seed)
    assert [c.kind for c in episode.calls] == ["bad"] * start.budget
    assert {c.observation for c in episode.calls} == {game.observe(start)}
    assert (episode.outcome.invalid, episode.outcome.acts) == (start.budget, start.budget)
    assert episode.outcome.progress == episode.outcome.progress0
    assert episode.journal == []
    assert episode.valid  # a bad reply is the policy's own doing
    assert episode.components["invalid"] < 0


def test_looks_end_with_the_budget(game: Game, template: Template, scripted: Any) -> None:
    plan = EpisodePlan("e0", 3, 5, 0, 0)
    (episode,) = _run(scripted({plan.id: [template.reply_ids("", call="look")]}), game, template, [plan])
    assert len(episode.calls) == game.start(3, 5).budget
    assert episode.outcome.noops == len(episode.calls)


def test_a_full_context_ends_the_episode_as_invalid(game: Game, template: Template, scripted: Any) -> None:
    plan = EpisodePlan("e0", 4, 5, 0, 0)
    look = template.reply_ids("need", call="look")
    turn = len(look) + len(template.user(game.observe(game.start(4, 5))))
    for limits in ({"max_context": 2 * turn + 16}, {"max_len": 2 * turn + 16}):
        engine = scripted({plan.id: [look]}, max_len=limits.get("max_len", 512))
        (episode,) = _run(engine, game, template, [plan], max_context=limits.get("max_context", 512))
        assert (episode.valid, episode.reason) == (False, "context")
        assert len(episode.calls) == 2  # a third prompt would leave less than 16 tokens
        assert engine.held == set()
    (episode,) = _run(scripted({plan.id: [look]}), game, template, [plan], max_context=10)
    assert (episode.calls, episode.valid) == ([], False)


def test_an_aborted_call_is_recorded_but_not_carried_out(game: Game, template: Template, scripted: Any) -> None:
    (plan,) = _plans(1)
    engine = scripted({plan.id: _optimal(game, template, plan)}, finish="abort")
    (episode,) = _run(engine, game, template, [plan])
    assert (episode.valid, episode.reason, len(episode.calls)) == (False, "aborted", 1)
    assert episode.outcome.acts == 0
    assert episode.journal == []


def test_an_engine_that_fails_on_everything_raises_and_releases_the_sessions(
    game: Game, template: Template, scripted: Any
) -> None:
    engine = scripted({})
    with pytest.raises(KeyError):
        _run(engine, game, template, _plans(2))
    assert engine.held == set()


@pytest.mark.parametrize("slots", [1, 8])
def test_an_engine_failure_ends_its_episode_only(game: Game, template: Template, scripted: Any, slots: int) -> None:
    """The engine fails on one episode's second call: its first call is kept, the others finish."""
    plans = _plans(4)
    script = {plan.id: _optimal(game, template, plan) for plan in plans}
    expected = _run(scripted(script), game, template, plans)
    engine = scripted(script, slots=slots)
    generate = engine.generate

    def failing(prompts: Any, sessions: Any, *more: Any) -> Any:
        if "e2" in sessions and engine.prompts.get("e2"):
            raise MemoryError("out of memory")
        return generate(prompts, sessions, *more)

    engine.generate = failing
    episodes = _run(engine, game, template, plans)
    assert [e.reason for e in episodes] == [None, None, "engine_failed", None]
    assert episodes[2].calls == expected[2].calls[:1]
    assert episodes[2].journal == expected[2].journal[:1]
    assert [episodes[i] for i in (0, 1, 3)] == [expected[i] for i in (0, 1, 3)]
    assert engine.held == set()


def test_a_batch_that_failed_in_part_keeps_its_completions(game: Game, template: Template, scripted: Any) -> None:
    """Engines behind HTTP say what each call gave: nothing is asked twice."""
    plans = _plans(3)
    engine = scripted({plan.id: _optimal(game, template, plan) for plan in plans})
    generate = engine.generate

    def failing(prompts: Any, sessions: Any, rngs: Any, sampling: Any) -> Any:
        done = generate(prompts, sessions, rngs, sampling)
        if "e1" not in sessions:
            return done
        error = EngineDiedError("the connection ended")
        error.batch = [error if s == "e1" else c for s, c in zip(sessions, done, strict=True)]
        raise error

    engine.generate = failing
    episodes = _run(engine, game, template, plans)
    assert [e.reason for e in episodes] == [None, "engine_died", None]
    assert [len(engine.prompts[e.plan.id]) for e in episodes] == [len(episodes[0].calls), 1, len(episodes[2].calls)]


def test_call_seeds_depend_on_key_episode_and_call_only(game: Game, template: Template, scripted: Any) -> None:
    plans = _plans(3)
    engine = scripted({p.id: [template.reply_ids("", call="look")] for p in plans}, slots=2)
    _run(engine, game, template, plans, seed_key=("rollout", 4))
    for plan in plans:
        drawn = engine.uniforms[plan.id]
        assert drawn == [float(np_rng("rollout", 4, plan.id, k).random()) for k in range(len(drawn))]


def test_knowledge_stands_once_in_front_in_an_order_of_its_own(game: Game, template: Template, scripted: Any) -> None:
    facts = ["left@N", "trap@NE", "top@SE", "wipe@S", "red@b", "green@c"]
    plans = _plans(6)
    engine = scripted({p.id: [template.reply_ids("", call="look")] for p in plans})
    episodes = _run(engine, game, template, plans, knowledge=facts)
    orders = set()
    for plan, episode in zip(plans, episodes, strict=True):
        words = template.vocab.decode(episode.calls[0].prompt_ids).split()
        assert words[:2] == ["<u>", "know"]
        told = words[2 : 2 + len(facts)]
        assert sorted(told) == sorted(facts)
        observation = game.observe(game.start(plan.level, plan.seed)).split()
        assert words[2 + len(facts) :] == [*observation, "<a>"]
        assert template.vocab.decode(episode.calls[-1].prompt_ids).split().count("know") == 1
        orders.add(tuple(told))
    assert len(orders) > 1
    assert facts[0] == "left@N"  # the caller's list is left alone
    again = _run(scripted(engine.script), game, template, plans[::-1], knowledge=facts)
    assert [e.calls[0].prompt_ids for e in again[::-1]] == [e.calls[0].prompt_ids for e in episodes]


def test_unknown_words_are_counted_per_episode(game: Game, template: Template, scripted: Any) -> None:
    plans = _plans(2)
    engine = scripted({p.id: _optimal(game, template, p) for p in plans})
    assert [e.unknown_words for e in _run(engine, game, template, plans)] == [0, 0]
    engine = scripted(engine.script)
    told = _run(engine, game, template, plans, knowledge=["left@N", "the sky is", "blue"])
    assert [e.unknown_words for e in told] == [2, 2]  # "the" and "sky"


def test_bad_arguments_are_refused(game: Game, template: Template, scripted: Any) -> None:
    with pytest.raises(UserError, match="share an id"):
        _run(scripted({}), game, template, [_plans(1)[0]] * 2)
    with pytest.raises(UserError, match="stop"):
        _run(scripted({}), game, template, _plans(1), sampling=SamplingParams())
    assert _run(scripted({}), game, template, []) == []


def test_inprocess_is_a_harness(game: Game, template: Template, scripted: Any, sampling: SamplingParams) -> None:
    harness: Harness = InProcess(scripted({}), game, template, sampling)
    assert harness.name == "inprocess"
    assert harness.play([], seed_key=("x",)) == []


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_replies_keep_the_chain_and_end_in_the_budget(game: Game, scripted: Any, data: st.DataObject) -> None:
    template = Template.of(game)
    token = st.integers(0, len(template.vocab) - 1)
    call = st.sampled_from([*game.call_words(), "look"]).map(lambda w: template.reply_ids("need", call=w))
    reply = call | st.lists(token, min_size=1, max_size=16)
    plans = _plans(2, level=data.draw(st.integers(1, 4)))
    engine = scripted({p.id: data.draw(st.lists(reply, min_size=1, max_size=9)) for p in plans})
    for episode in _run(engine, game, template, plans):
        assert episode.prefix_extending
        assert episode.valid
        assert 1 <= len(episode.calls) <= episode.outcome.budget
        assert episode.outcome.acts == len(episode.calls) - episode.outcome.text_end
        assert len(episode.journal) == sum(c.kind == "call" for c in episode.calls)
        for row in episode.journal:
            JournalRow.model_validate(row)
