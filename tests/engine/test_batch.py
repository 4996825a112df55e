from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from internalize.engine import batch
from internalize.engine.batch import Call, RunningBatch
from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Completion, SamplingParams
from internalize.errors import UserError

MakeEngine = Callable[..., LocalEngine]


def _prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng([7, seed]).integers(0, 61, length).tolist()  # type: ignore[no-any-return]


def _alone(engine: LocalEngine, call: Call) -> Completion:
    """What the call gives with nobody else around, from the engine that trains the default study."""
    engine.flush()
    rng = np.random.Generator(np.random.PCG64(call.seed))
    (completion,) = engine.generate([call.prompt], ["alone"], [rng], call.sampling)
    return completion


def _assert_equal(got: Completion, want: Completion) -> None:
    assert (got.output_ids, got.finish) == (want.output_ids, want.finish)
    assert np.abs(np.array(got.logprobs) - want.logprobs).max() < 1e-5


def _drain(running: RunningBatch) -> list[tuple[Call, Completion]]:
    over = []
    while running.rows:
        over += running.step()
    return over


@st.composite
def calls(draw: st.DrawFn) -> list[tuple[int, Call]]:
    """(step at which it joins, call), in order of joining."""
    made = []
    for i in range(draw(st.integers(1, 10))):
        sampling = SamplingParams(
            temperature=draw(st.sampled_from([0.0, 0.7, 1.0])),
            max_new_tokens=draw(st.integers(1, 12)),
            stop_ids=draw(st.sampled_from([(), (3, 4), tuple(range(20))])),
        )
        call = Call(f"r{i}", _prompt(i, draw(st.integers(1, 40))), sampling, seed=i, session=f"s{i}")
        made.append((draw(st.integers(0, 15)), call))
    return sorted(made, key=lambda pair: pair[0])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arrivals=calls(), second=st.booleans())
def test_a_result_does_not_depend_on_who_shares_the_batch(
    make_engine: MakeEngine, arrivals: list[tuple[int, Call]], second: bool
) -> None:
    running, reference = RunningBatch(make_engine(slots=10)), make_engine(slots=1)
    over: dict[str, Completion] = {}
    for now in range(16):
        done = running.admit([call for at, call in arrivals if at == now]) + running.step()
        over |= {call.rid: completion for call, completion in done}
    over |= {call.rid: completion for call, completion in _drain(running)}
    for _, call in arrivals:
        _assert_equal(over[call.rid], _alone(reference, call))
    if second:  # a next turn of every conversation, on the caches that the first left behind
        turns = []
        for _, call in arrivals:
            prompt = [*call.prompt, *over[call.rid].output_ids, *_prompt(99, 3)]
            turns.append(Call(call.rid, prompt, call.sampling, call.seed + 100, call.session))
        done = running.admit(turns)
        for call, completion in [*done, *_drain(running)]:
            _assert_equal(completion, _alone(reference, call))
            # all but the last token of the first turn, after which nothing was fed
            assert completion.cached_tokens == len(call.prompt) - 3 - 1


def test_equal_schedules_are_equal_bit_for_bit(make_engine: MakeEngine) -> None:
    def play() -> list[Completion]:
        running = RunningBatch(make_engine())
        sampling = SamplingParams(max_new_tokens=9)
        over = running.admit([Call(str(i), _prompt(i, 9 + i), sampling, i, str(i)) for i in range(3)])
        over += running.step()
        over += running.admit([Call("late", _prompt(9, 30), sampling, 9, "late")])
        return [completion for _, completion in over + _drain(running)]

    assert play() == play()


def test_an_aborted_call_returns_the_beginning_and_the_next_turn_may_continue_it(
    make_engine: MakeEngine,
) -> None:
    engine, reference = make_engine(), make_engine()
    running = RunningBatch(engine)
    sampling = SamplingParams(max_new_tokens=30)
    three = [Call(f"r{i}", _prompt(i, 10 + i), sampling, i, f"s{i}") for i in range(3)]
    running.admit(three)
    for _ in range(4):
        running.step()
    ((call, part),) = running.abort("r1")
    whole = [_alone(reference, c) for c in three]
    assert call is three[1]
    assert part.finish == "abort"
    assert part.output_ids == whole[1].output_ids[:5]
    assert len(part.logprobs) == 5
    others = {c.rid: done for c, done in _drain(running)}
    _assert_equal(others["r0"], whole[0])
    _assert_equal(others["r2"], whole[2])
    again = Call("again", [*call.prompt, *part.output_ids], SamplingParams(max_new_tokens=5), 5, "s1")
    over = running.admit([again])
    ((_, rest),) = over + _drain(running)
    assert rest.cached_tokens == len(call.prompt) + 4
    _assert_equal(rest, _alone(reference, again))
    assert running.abort("r0") == running.abort(None) == []


def test_prefill_in_groups_equals_prefill_at_once(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PREFILL_TOKENS", 40)
    running, reference = RunningBatch(make_engine(max_len=64)), make_engine(max_len=64)
    sampling = SamplingParams(max_new_tokens=4)
    some = [Call(str(i), _prompt(i, n), sampling, i, str(i)) for i, n in enumerate((63, 1, 20, 60, 19, 2))]
    over = running.admit(some) + _drain(running)
    assert len(over) == 6
    for call, completion in over:
        _assert_equal(completion, _alone(reference, call))


def test_a_running_session_is_never_evicted(make_engine: MakeEngine) -> None:
    engine = make_engine(slots=2)
    running = RunningBatch(engine)
    long, short = SamplingParams(max_new_tokens=40), SamplingParams(max_new_tokens=1)
    keep = Call("keep", _prompt(0, 9), long, 0, "keep")
    running.admit([keep])
    for i in range(1, 5):  # each takes the one other slot
        running.step()
        assert running.admit([Call(str(i), _prompt(i, 5), short, i, str(i))])[0][0].rid == str(i)
    ((_, done),) = _drain(running)
    _assert_equal(done, _alone(make_engine(), keep))
    assert len(engine._slots.cached("keep")) == 9 + 40 - 1


def test_output_that_is_not_finite_loses_the_rows_but_not_the_engine(
    make_engine: MakeEngine, make_state: Callable[[int], dict[str, Tensor]]
) -> None:
    engine = make_engine()
    running = RunningBatch(engine)
    sampling = SamplingParams(max_new_tokens=6)
    state = {n: t * (1e25 if any(x in n for x in ("v_proj", "o_proj")) else 1.0) for n, t in make_state(0).items()}
    engine.update_weights(state, "huge")
    with pytest.raises(UserError, match="huge"):
        running.admit([Call("a", _prompt(0, 8), sampling, 0, "a")])
    running.drop()
    engine.update_weights(make_state(0), "v0")
    good = Call("b", _prompt(0, 8), sampling, 0, "a")
    over = running.admit([good])
    ((_, done),) = over + _drain(running)
    _assert_equal(done, _alone(make_engine(), good))
