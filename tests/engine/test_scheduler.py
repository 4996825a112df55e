from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from internalize.engine.batch import Call
from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Completion, SamplingParams
from internalize.engine.scheduler import BusyError, Scheduler, StoppedError
from internalize.errors import UserError

MakeScheduler = Callable[..., Scheduler]
LONG = SamplingParams(max_new_tokens=1500)
SHORT = SamplingParams(max_new_tokens=8)
PATIENCE = 60.0


@pytest.fixture
def make_scheduler(make_engine: Callable[..., LocalEngine]) -> Iterator[MakeScheduler]:
    made: list[Scheduler] = []

    def make(slots: int = 8, max_len: int = 128, seed: int = 0, **options: Any) -> Scheduler:
        made.append(Scheduler(make_engine(slots=slots, max_len=max_len, seed=seed), **options).start())
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop()
        assert not scheduler.alive


def _prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng([8, seed]).integers(0, 61, length).tolist()  # type: ignore[no-any-return]


def _call(name: str, seed: int = 0, sampling: SamplingParams = SHORT, session: str | None = None) -> Call:
    return Call(name, _prompt(seed, 10), sampling, seed, name if session is None else session)


def _until(condition: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE / 0.002)):
        if condition():
            return
        time.sleep(0.002)
    raise AssertionError("it never happened")


def _running(scheduler: Scheduler, count: int) -> Callable[[], bool]:
    return lambda: scheduler.live_calls[1] == count


def test_calls_join_those_that_run(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(max_len=2048)
    first = scheduler.submit(_call("first", sampling=LONG))
    _until(_running(scheduler, 1))
    later = [scheduler.submit(_call(f"later{i}", i)).result(PATIENCE) for i in range(3)]
    assert not first.done()  # three calls came and went while it ran
    assert all(len(c.output_ids) == 8 for c in later)
    assert scheduler.abort(None).result(PATIENCE) == 1
    assert first.result().finish == "abort"


def test_more_calls_than_slots_all_end(make_scheduler: MakeScheduler, make_engine: Callable[..., LocalEngine]) -> None:
    scheduler, reference = make_scheduler(slots=3), make_engine(slots=1)
    futures = {i: scheduler.submit(_call(f"r{i}", i)) for i in range(20)}
    for i, future in futures.items():
        rng = np.random.Generator(np.random.PCG64(i))
        reference.flush()
        (want,) = reference.generate([_prompt(i, 10)], ["x"], [rng], SHORT)
        assert future.result(PATIENCE).output_ids == want.output_ids
    # 20 calls of 8 tokens, never more than 3 at once, the first of each from its prefill
    assert scheduler.steps >= 20 * 7 / 3


def test_abort_ends_one_call_and_only_it(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=2, max_len=2048)
    kept, ended = scheduler.submit(_call("a", 1, LONG)), scheduler.submit(_call("b", 2, LONG))
    _until(_running(scheduler, 2))
    queued = scheduler.submit(_call("c", 3, LONG))
    assert scheduler.abort("nobody").result(PATIENCE) == 0
    assert scheduler.abort("b").result(PATIENCE) == 1
    assert ended.result().finish == "abort"
    assert 0 < len(ended.result().output_ids) == len(ended.result().logprobs) < 1500
    _until(_running(scheduler, 2))  # the queued one took its place
    scheduler.submit(_call("d", 4, LONG))
    assert scheduler.abort("d").result(PATIENCE) == 1  # never started
    assert not kept.done()
    assert not queued.done()


def test_pause_returns_what_was_sampled_and_later_calls_wait(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=1, max_len=2048)
    running, queued = scheduler.submit(_call("a", 1, LONG)), scheduler.submit(_call("b", 2, LONG))
    _until(_running(scheduler, 1))
    assert scheduler.flush().result(PATIENCE) is False  # refused: a call is running
    assert scheduler.pause().result(PATIENCE) == 2
    assert len(running.result().output_ids) > 0
    assert (queued.result().output_ids, queued.result().finish) == ([], "abort")
    waiting = scheduler.submit(_call("c", 3))
    assert scheduler.flush().result(PATIENCE) is True
    assert scheduler.live_calls == (1, 0)
    assert not waiting.done()
    scheduler.resume().result(PATIENCE)
    assert len(waiting.result(PATIENCE).output_ids) == 8


@pytest.mark.parametrize("abort", [False, True], ids=["drain", "abort"])
def test_no_call_mixes_weight_versions_under_load(
    make_scheduler: MakeScheduler,
    make_engine: Callable[..., LocalEngine],
    make_state: Callable[[int], dict[str, Tensor]],
    abort: bool,
) -> None:
    """Four clients keep calling while the weights change a dozen times. Every log-prob must be that of the
    version which its call names; one token of other weights would be off by far more."""
    scheduler = make_scheduler(slots=6)
    over: list[tuple[list[int], Completion]] = []
    changing = threading.Event()
    changing.set()

    def client(number: int) -> None:
        turn = 0
        while changing.is_set():
            call = _call(f"{number}/{turn}", 100 * number + turn, SamplingParams(max_new_tokens=25), f"s{number}")
            over.append((call.prompt, scheduler.submit(call).result(PATIENCE)))
            turn += 1

    clients = [threading.Thread(target=client, args=(n,)) for n in range(4)]
    for thread in clients:
        thread.start()
    for change in range(1, 13):
        before = len(over)
        _until(lambda before=before: len(over) > before)  # type: ignore[misc]
        loading = scheduler.load(lambda c=change: make_state(c % 2), lambda c=change: f"v{c % 2}", abort)  # type: ignore[misc]
        assert loading.result(PATIENCE) == f"v{change % 2}"
    changing.clear()
    for thread in clients:
        thread.join(PATIENCE)
    assert {c.weight_version for _, c in over} == {"v0", "v1"}
    assert abort == any(c.finish == "abort" for _, c in over)
    for version in (0, 1):
        mine = [(p, c) for p, c in over if c.weight_version == f"v{version}" and c.output_ids]
        scored = make_engine(seed=version).token_logprobs([p + c.output_ids for p, c in mine])
        for (prompt, completion), row in zip(mine, scored, strict=True):
            assert np.abs(np.array(row[len(prompt) :]) - completion.logprobs).max() < 1e-4


def test_weights_that_do_not_load_leave_the_old_ones(
    make_scheduler: MakeScheduler, make_state: Callable[[int], dict[str, Tensor]]
) -> None:
    scheduler = make_scheduler()

    def missing() -> dict[str, Tensor]:
        raise UserError("no such folder")

    before = scheduler.submit(_call("a", 5)).result(PATIENCE)
    with pytest.raises(UserError, match="no such folder"):
        scheduler.load(missing, lambda: "v9").result(PATIENCE)
    with pytest.raises(UserError, match="missing or has the wrong shape"):
        scheduler.load(dict, lambda: "v9").result(PATIENCE)
    after = scheduler.submit(_call("b", 5)).result(PATIENCE)
    assert (after.output_ids, after.weight_version) == (before.output_ids, "v0")


def test_a_model_that_fails_fails_its_callers_and_not_the_thread(
    make_scheduler: MakeScheduler, make_state: Callable[[int], dict[str, Tensor]]
) -> None:
    scheduler = make_scheduler()
    state = {n: t * (1e25 if any(x in n for x in ("v_proj", "o_proj")) else 1.0) for n, t in make_state(0).items()}
    good = scheduler.submit(_call("a", 5)).result(PATIENCE)
    scheduler.load(lambda: state, lambda: "huge").result(PATIENCE)
    broken = [scheduler.submit(_call(f"x{i}", i)) for i in range(4)]
    for future in broken:
        with pytest.raises(UserError, match="not finite"):
            future.result(PATIENCE)
    scheduler.load(lambda: make_state(0), lambda: "v0").result(PATIENCE)
    assert scheduler.submit(_call("a", 5)).result(PATIENCE) == good


def test_calls_of_one_conversation_run_one_after_the_other(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(max_len=2048)
    first = scheduler.submit(_call("a", 1, LONG, session="same"))
    _until(_running(scheduler, 1))
    second = scheduler.submit(_call("b", 1, SHORT, session="same"))
    other = scheduler.submit(_call("c", 2, SHORT, session="other"))
    other.result(PATIENCE)
    assert scheduler.live_calls == (1, 1)
    scheduler.abort("a").result(PATIENCE)
    assert second.result(PATIENCE).output_ids == first.result().output_ids[:8]
    assert second.result().cached_tokens == 9  # of the prompt's 10; the last must be fed


def test_calls_without_a_conversation_find_their_prefix(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=4)
    one = scheduler.submit(_call("a", 1, session="")).result(PATIENCE)
    other = scheduler.submit(_call("b", 2, session="")).result(PATIENCE)
    assert (one.cached_tokens, other.cached_tokens) == (0, 0)
    next_turn = Call("c", [*_prompt(1, 10), *one.output_ids, 5, 6], SHORT, 3)
    assert scheduler.submit(next_turn).result(PATIENCE).cached_tokens == 10 + 8 - 1
    named = Call("d", [*_prompt(2, 10), *other.output_ids, 5, 6], SHORT, 3, session="named")
    assert scheduler.submit(named).result(PATIENCE).cached_tokens == 0


def test_refusals(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=1, max_len=2048, max_calls=2)
    for bad in ([], [61], [1] * 2048):
        with pytest.raises(UserError, match="prompt"):
            scheduler.submit(Call("bad", bad, SHORT, 0))
    scheduler.submit(_call("a", 1, LONG))
    _until(_running(scheduler, 1))
    with pytest.raises(UserError, match="rid"):
        scheduler.submit(_call("a", 2)).result(PATIENCE)
    scheduler.submit(_call("b", 2))
    _until(lambda: scheduler.live_calls == (1, 1))
    with pytest.raises(BusyError):
        scheduler.submit(_call("c", 3))


def test_stop_ends_every_call_and_refuses_others(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=1, max_len=2048)
    futures: list[Future[Any]] = [scheduler.submit(_call(f"r{i}", i, LONG)) for i in range(3)]
    _until(_running(scheduler, 1))
    scheduler.stop()
    assert wait(futures, timeout=PATIENCE).not_done == set()
    assert {f.result().finish for f in futures} == {"abort"}
    for refused in (scheduler.pause, scheduler.flush, lambda: scheduler.submit(_call("late"))):
        with pytest.raises(StoppedError):
            refused()
    scheduler.stop()  # twice is fine
