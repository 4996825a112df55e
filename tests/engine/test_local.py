from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from internalize.engine.local import LocalEngine, sample
from internalize.engine.protocol import Completion, SamplingParams
from internalize.errors import UserError

MakeEngine = Callable[..., LocalEngine]
SAMPLING = SamplingParams(max_new_tokens=10, stop_ids=(3, 4))


def _prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng([9, seed]).integers(0, 61, length).tolist()  # type: ignore[no-any-return]


def _rngs(*keys: int, call: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng([k, call]) for k in keys]


def _conversation(engine: LocalEngine, keys: Sequence[int], turns: int, forget: bool = False) -> list[list[Completion]]:
    """`turns` calls of each session, prompts growing by the output and a random user turn."""
    prompts = [_prompt(k, 5 + 7 * (k % 3)) for k in keys]
    calls = []
    for turn in range(turns):
        if forget:
            engine.flush()
        done = engine.generate(prompts, [f"s{k}" for k in keys], _rngs(*keys, call=turn), SAMPLING)
        calls.append(done)
        prompts = [
            p + c.output_ids + _prompt(100 * k + turn, 1 + (k + turn) % 5)
            for k, p, c in zip(keys, prompts, done, strict=True)
        ]
    return calls


def _ids(calls: list[list[Completion]]) -> list[list[list[int]]]:
    return [[c.output_ids for c in turn] for turn in calls]


def _logprobs(calls: list[list[Completion]]) -> np.ndarray[Any, Any]:
    return np.array([x for turn in calls for c in turn for x in c.logprobs])


def test_cached_conversation_equals_uncached(make_engine: MakeEngine) -> None:
    cached, plain = (
        _conversation(make_engine(), range(5), 4),
        _conversation(make_engine(), range(5), 4, forget=True),
    )
    assert _ids(cached) == _ids(plain)
    assert np.abs(_logprobs(cached) - _logprobs(plain)).max() < 1e-5
    assert all(c.cached_tokens == 0 for turn in plain for c in turn)
    prompts = [_prompt(k, 5 + 7 * (k % 3)) for k in range(5)]
    for k, c in enumerate(cached[1]):
        # all of the first call but its last token, which nothing was fed after
        assert c.cached_tokens == len(prompts[k]) + len(cached[0][k].output_ids) - 1


def test_result_does_not_depend_on_the_batch(make_engine: MakeEngine) -> None:
    together = _conversation(make_engine(), range(6), 3)
    for key in range(6):
        alone = _conversation(make_engine(), [key], 3)
        assert _ids(alone) == [[turn[key]] for turn in _ids(together)]
        assert np.abs(_logprobs(alone) - _logprobs([[turn[key]] for turn in together])).max() < 1e-5


def test_same_calls_are_equal_bit_for_bit(make_engine: MakeEngine) -> None:
    one, two = _conversation(make_engine(), range(6), 3), _conversation(make_engine(), range(6), 3)
    assert one == two  # dataclasses: every float compared exactly


def test_earlier_work_leaves_no_trace(make_engine: MakeEngine, make_state: Callable[[int], dict[str, Tensor]]) -> None:
    """A resumed process has a fresh engine where the killed one had a used one; results must be equal."""
    fresh, used = make_engine(seed=0), make_engine(seed=1)
    _conversation(used, [7, 8, 9], 3)
    used.update_weights(make_state(0), "v0")
    assert _conversation(used, range(6), 3) == _conversation(fresh, range(6), 3)


def test_non_finite_weights_and_logprobs_are_refused(
    make_engine: MakeEngine, make_state: Callable[[int], dict[str, Tensor]]
) -> None:
    engine = make_engine(seed=0)
    before = _conversation(engine, range(3), 2)
    state = make_state(0)
    state["model.norm.weight"][3] = float("nan")
    with pytest.raises(UserError, match="not finite"):
        engine.update_weights(state, "nan")
    huge = ("v_proj", "o_proj")  # finite, their product is not
    state = {n: t * (1e25 if any(x in n for x in huge) else 1.0) for n, t in make_state(0).items()}
    engine.update_weights(state, "huge")
    with pytest.raises(UserError, match="huge"):
        _conversation(engine, range(3), 1)
    engine.update_weights(make_state(0), "v0")
    assert _conversation(engine, range(3), 2) == before


def test_logprobs_are_those_of_scoring_the_whole_sequence(make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompts = [_prompt(k, 6 + k) for k in range(4)]
    done = engine.generate(prompts, list("abcd"), _rngs(0, 1, 2, 3), SAMPLING)
    scored = engine.token_logprobs([p + c.output_ids for p, c in zip(prompts, done, strict=True)])
    for prompt, completion, row in zip(prompts, done, scored, strict=True):
        assert len(completion.logprobs) == len(completion.output_ids)
        assert np.abs(np.array(row[len(prompt) :]) - completion.logprobs).max() < 1e-5
        assert row[0] == 0.0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_logprobs_are_of_the_tempered_distribution(make_engine: MakeEngine, temperature: float) -> None:
    engine = make_engine()
    prompt = _prompt(0, 12)
    sampling = SamplingParams(temperature=temperature, max_new_tokens=6)
    (done,) = engine.generate([prompt], ["a"], _rngs(0), sampling)
    logits_up_to_a_constant = engine.score([prompt + done.output_ids])[0][11:-1]
    expected = torch.log_softmax(logits_up_to_a_constant / temperature, -1)
    picked = expected.gather(1, torch.tensor(done.output_ids)[:, None])[:, 0]
    assert (picked - torch.tensor(done.logprobs)).abs().max() < 1e-5
    again = engine.token_logprobs([prompt + done.output_ids], temperature)[0][12:]
    assert np.abs(np.array(again) - done.logprobs).max() < 1e-5


def test_greedy_takes_the_most_likely_and_reports_temperature_one(make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompt = _prompt(1, 9)
    greedy = SamplingParams(temperature=0.0, max_new_tokens=7)
    (one,) = engine.generate([prompt], ["a"], _rngs(0), greedy)
    engine.flush()
    (two,) = engine.generate([prompt], ["a"], _rngs(99), greedy)
    assert one.output_ids == two.output_ids
    table = engine.score([prompt + one.output_ids])[0][8:-1]
    assert table.argmax(-1).tolist() == one.output_ids
    assert np.abs(table.max(-1).values.numpy() - one.logprobs).max() < 1e-5


def test_stop_and_length(make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompts = [_prompt(k, 8) for k in range(8)]
    names = [str(k) for k in range(8)]
    free = engine.generate(prompts, names, _rngs(*range(8)), SamplingParams(max_new_tokens=12))
    assert all(c.finish == "length" and len(c.output_ids) == 12 for c in free)
    stop = free[0].output_ids[4]
    engine.flush()
    stopping = SamplingParams(max_new_tokens=12, stop_ids=(stop,))
    cut = engine.generate(prompts, names, _rngs(*range(8)), stopping)
    assert cut[0].finish == "stop"
    for whole, part in zip(free, cut, strict=True):
        n = whole.output_ids.index(stop) + 1 if stop in whole.output_ids else 12
        assert part.output_ids == whole.output_ids[:n]
        assert part.finish == ("stop" if stop in whole.output_ids else "length")


def test_max_len_ends_a_row_without_touching_the_others(make_engine: MakeEngine) -> None:
    sampling = SamplingParams(max_new_tokens=20)
    short, long = _prompt(0, 10), _prompt(1, 25)
    engine = make_engine(max_len=30)
    a, b = engine.generate([short, long], ["a", "b"], _rngs(0, 1), sampling)
    assert (len(b.output_ids), b.finish) == (5, "length")
    assert len(a.output_ids) == 20
    (alone,) = make_engine(max_len=30).generate([short], ["a"], _rngs(0), sampling)
    assert alone.output_ids == a.output_ids
    with pytest.raises(UserError, match="does not fit"):
        engine.generate([_prompt(2, 30)], ["c"], _rngs(2), sampling)


def test_changed_history_reuses_only_the_common_prefix(make_engine: MakeEngine) -> None:
    engine, fresh = make_engine(), make_engine()
    prompt = _prompt(0, 20)
    engine.generate([prompt], ["a"], _rngs(0), SAMPLING)
    edited = [*prompt[:11], (prompt[11] + 1) % 61, *prompt[12:]]
    (one,) = engine.generate([edited], ["a"], _rngs(1), SAMPLING)
    (two,) = fresh.generate([edited], ["a"], _rngs(1), SAMPLING)
    assert one.cached_tokens == 11
    assert one.output_ids == two.output_ids
    (again,) = engine.generate([prompt[:5]], ["a"], _rngs(2), SAMPLING)
    assert again.cached_tokens == 4  # the last token must be fed for its logits


def test_release_and_flush_forget(make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompts = [_prompt(0, 20), _prompt(1, 20)]

    def cached() -> list[int]:
        return [c.cached_tokens for c in engine.generate(prompts, ["a", "b"], _rngs(0, 1), SAMPLING)]

    assert cached() == [0, 0]
    assert cached() == [19, 19]
    engine.release(["a", "never seen"])
    assert cached() == [0, 19]
    engine.flush()
    assert cached() == [0, 0]


def test_idle_sessions_are_evicted_oldest_first(make_engine: MakeEngine) -> None:
    engine = make_engine(slots=2)
    prompts = {name: _prompt(i, 20) for i, name in enumerate("abc")}

    def call(name: str) -> int:
        return engine.generate([prompts[name]], [name], _rngs(0), SAMPLING)[0].cached_tokens

    assert [call(n) for n in "aba"] == [0, 0, 19]
    assert call("c") == 0  # evicts b
    assert call("a") == 19
    assert call("b") == 0
    with pytest.raises(UserError, match="too many"):
        engine.generate(list(prompts.values()), list("abc"), _rngs(0, 1, 2), SAMPLING)


def test_new_weights_change_output_and_version_and_drop_caches(
    make_engine: MakeEngine, make_state: Callable[[int], dict[str, Tensor]]
) -> None:
    engine = make_engine(seed=0)
    prompt = _prompt(0, 20)
    (old,) = engine.generate([prompt], ["a"], _rngs(0), SAMPLING)
    engine.update_weights(make_state(1), "step-1")
    (new,) = engine.generate([prompt], ["a"], _rngs(0), SAMPLING)
    (expected,) = make_engine(seed=1).generate([prompt], ["a"], _rngs(0), SAMPLING)
    assert (old.weight_version, new.weight_version) == ("v0", "step-1")
    assert new.cached_tokens == 0
    assert new.output_ids == expected.output_ids != old.output_ids
    assert new.logprobs == expected.logprobs


def test_weights_are_a_copy_and_a_bad_update_keeps_the_old_ones(
    make_engine: MakeEngine, make_state: Callable[[int], dict[str, Tensor]]
) -> None:
    engine = make_engine(seed=0)
    before = engine.score([_prompt(0, 9)])[0]
    state = make_state(1)
    del state["model.norm.weight"]
    with pytest.raises(UserError):
        engine.update_weights(state, "bad")
    assert engine.weight_version == "v0"
    mine = make_state(0)
    engine.update_weights(mine, "v0")
    for tensor in mine.values():
        tensor.zero_()
    assert torch.equal(engine.score([_prompt(0, 9)])[0], before)


def test_score_is_independent_of_the_batch_and_normalised(make_engine: MakeEngine) -> None:
    engine = make_engine()
    sequences = [_prompt(k, n) for k, n in enumerate((1, 50, 3, 17, 50))]
    tables = engine.score(sequences)
    assert [tuple(t.shape) for t in tables] == [(len(s), 61) for s in sequences]
    for sequence, table in zip(sequences, tables, strict=True):
        assert (table - engine.score([sequence])[0]).abs().max() < 1e-5
        assert (table.exp().sum(-1) - 1).abs().max() < 1e-5
    assert engine.score([]) == []


@pytest.mark.parametrize("group", [1, 30, 60])
def test_prefill_in_groups_equals_one(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    """Prompts of different lengths, with and without a cached beginning."""
    whole = _conversation(make_engine(), range(6), 3)
    monkeypatch.setattr("internalize.engine.local.PREFILL_TOKENS", 1)
    monkeypatch.setattr("internalize.engine.local.PREFILL_GROUP", group)
    parts = _conversation(make_engine(), range(6), 3)
    assert _ids(parts) == _ids(whole)
    assert np.abs(_logprobs(parts) - _logprobs(whole)).max() < 1e-5
    assert [c.cached_tokens for turn in parts for c in turn] == [c.cached_tokens for turn in whole for c in turn]


def test_score_in_several_chunks_equals_one(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    sequences = [_prompt(k, 1 + (13 * k) % 40) for k in range(20)]
    whole = engine.score(sequences)
    monkeypatch.setattr("internalize.engine.local.SCORE_TOKENS", 60)
    assert all((a - b).abs().max() < 1e-5 for a, b in zip(whole, engine.score(sequences), strict=True))


def test_bad_calls_are_refused(config: dict[str, Any], make_engine: MakeEngine) -> None:
    engine = make_engine()
    with pytest.raises(UserError, match="no weights"):
        LocalEngine(config).score([[1]])
    with pytest.raises(UserError, match="does not fit"):
        engine.generate([[]], ["a"], _rngs(0), SAMPLING)
    for bad in (61, -1):
        with pytest.raises(UserError, match="does not have"):
            engine.generate([[1, bad]], ["a"], _rngs(0), SAMPLING)
    with pytest.raises(UserError, match="twice"):
        engine.generate([[1], [2]], ["a", "a"], _rngs(0, 1), SAMPLING)
    with pytest.raises(UserError, match="equally many"):
        engine.generate([[1]], ["a", "b"], _rngs(0), SAMPLING)
    assert engine.generate([], [], [], SAMPLING) == []
    for temperature, tokens in ((-1.0, 3), (float("nan"), 3), (float("inf"), 3), (1.0, 0)):
        with pytest.raises(ValueError, match="must be"):
            SamplingParams(temperature=temperature, max_new_tokens=tokens)


def test_sample_follows_the_distribution() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, float("-inf")])
    uniform = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    token, logprob = sample(logits.expand(20_000, 4), uniform, 2.0)
    expected = torch.softmax(logits / 2.0, -1)
    share = torch.bincount(token, minlength=4) / 20_000
    assert (share - expected).abs().max() <= 1e-4
    assert torch.allclose(logprob.exp(), expected[token])


@settings(max_examples=60, deadline=None)
@given(
    logits=st.lists(st.floats(-30, 30), min_size=2, max_size=12),
    uniform=st.one_of(st.floats(0, 1, exclude_max=True), st.just(1 - 2.0**-53), st.just(0.0)),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
)
def test_sample_inverts_the_cumulative_distribution(logits: list[float], uniform: float, temperature: float) -> None:
    row = torch.tensor([logits])
    token, logprob = sample(row, torch.tensor([uniform], dtype=torch.float64), temperature)
    p = torch.softmax(row.double()[0] / temperature, -1).cumsum(-1)
    index = int(token)
    assert (p[index - 1] if index else 0.0) - 1e-6 <= uniform <= p[index] + 1e-6
    assert float(logprob) <= 0.0
