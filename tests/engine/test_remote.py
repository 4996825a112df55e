"""Whole episodes over HTTP: the same as in process, token for token, and the trainer agrees on every log-prob."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from internalize.engine.client import EngineClient
from internalize.engine.faults import EngineRefusedError, EngineVersionError
from internalize.engine.folder import ModelFolder
from internalize.engine.protocol import Completion, SamplingParams
from internalize.engine.qwen3 import hf_shapes
from internalize.engine.remote import RemoteEngine, seed_of
from internalize.engine.server import Served, serve
from internalize.errors import UserError
from internalize.games import make_game
from internalize.harness.episode import Episode
from internalize.harness.inprocess import play
from internalize.language.template import Template
from internalize.rollout.advantages import Advantages
from internalize.rollout.plans import rollout_plans
from internalize.rollout.samples import samples
from internalize.seeds import derive, np_rng
from internalize.train.losses import LossSpec
from internalize.train.trainer import OptimizerSpec, Trainer

GAME = make_game(
    "dipwheel",
    rules={
        "stations": {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"},
        "pots": {"a": "blue", "b": "red", "c": "green"},
    },
)
TEMPERATURE = 0.8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model over the bundled game's words, in a folder of its own."""
    folder = tmp_path_factory.mktemp("game-model")
    config = {
        "model_type": "qwen3",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "intermediate_size": 48,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e4,
        "tie_word_embeddings": True,
        "max_position_embeddings": 512,
        "vocab_size": len(Template.of(GAME).vocab),
        "eos_token_id": Template.of(GAME).stop_id,
    }
    generator = torch.Generator().manual_seed(0)
    state = {
        name: torch.randn(shape, generator=generator) * 0.15 + (1.0 if len(shape) == 1 else 0.0)
        for name, shape in hf_shapes(config).items()
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(state, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def served_game(model: Path) -> Iterator[Served]:
    with serve(model, processes=2) as running:
        yield running


@pytest.fixture
def remote(served_game: Served) -> Iterator[RemoteEngine]:
    with RemoteEngine(lambda: EngineClient(served_game.urls)) as engine:
        yield engine


def _play(
    engine: Any, temperature: float = TEMPERATURE, knowledge: Sequence[str] | None = None, prefix: str = ""
) -> list[Episode]:
    template = Template.of(GAME)
    sampling = SamplingParams(temperature, max_new_tokens=16, stop_ids=(template.stop_id,))
    plans = rollout_plans(3, arm_seed=0, episodes=16, group_size=4, levels=(1, 2, 3))
    plans = [replace(plan, id=prefix + plan.id) for plan in plans]
    return play(engine, GAME, template, plans, sampling=sampling, seed_key=("test", 1), knowledge=knowledge)


def _without_rounding(episodes: list[Episode]) -> list[Episode]:
    """Log-probs may differ in the last bits: another batch, another order of summation."""
    return [replace(e, calls=[replace(c, logprobs=[]) for c in e.calls]) for e in episodes]


@pytest.mark.parametrize("temperature", [TEMPERATURE, 0.0])
def test_episodes_over_http_equal_those_in_process(model: Path, remote: RemoteEngine, temperature: float) -> None:
    here = ModelFolder(model).engine()
    assert (remote.slots, remote.max_len) == (2 * here.slots, here.max_len)
    assert remote.weight_version == here.weight_version
    near, far = _play(here, temperature), _play(remote, temperature)
    assert _without_rounding(far) == _without_rounding(near)
    assert max(len(e.calls) for e in far) > 2
    assert any(c.cached_tokens for e in far for c in e.calls)
    for one, other in zip(near, far, strict=True):
        for a, b in zip(one.calls, other.calls, strict=True):
            assert np.abs(np.array(a.logprobs) - b.logprobs).max() < 1e-5
    assert _play(remote, temperature)[0].calls[0].cached_tokens == 0  # the harness released its sessions


def _trained_again(folder: ModelFolder, episodes: list[Episode], temperature: float) -> Any:
    """The trainer's reading of what was sampled: one optimizer batch of all episodes at lr = 0."""
    advantages = Advantages((1.0,) * len(episodes), (False,) * len(episodes), groups=4, silent_groups=0)
    batch = samples(episodes, advantages)
    assert sum(sum(s.pg_mask or []) for s in batch) > 500
    with Trainer(folder.config(), OptimizerSpec(), seed=0) as trainer:
        trainer.load_hf(folder.state())
        return trainer.train_step(batch, LossSpec(temperature=temperature), lr=0.0)


@pytest.mark.parametrize("where", ["over HTTP", "in process"])
def test_the_trainer_recomputes_the_engines_log_probs(model: Path, remote: RemoteEngine, where: str) -> None:
    folder = ModelFolder(model)
    stats = _trained_again(folder, _play(remote if where == "over HTTP" else folder.engine()), TEMPERATURE)
    assert stats.logprob_abs_diff is not None
    assert stats.logprob_abs_diff < 1e-5
    assert stats.ratio_mean == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("where", ["over HTTP", "in process"])
def test_the_trainer_recomputes_those_of_the_shipped_base(repository: Path, where: str) -> None:
    """At its study's temperature, with facts in the prompt (long prompts) and without."""
    folder = ModelFolder(repository / "prebuilt/dipwheel")
    with ExitStack() as stack:
        engine: Any = folder.engine()
        if where == "over HTTP":
            served = stack.enter_context(serve(repository / "prebuilt/dipwheel"))
            engine = stack.enter_context(RemoteEngine(lambda: EngineClient(served.urls)))
        episodes = [*_play(engine, 1.0), *_play(engine, 1.0, knowledge=GAME.rules.facts(), prefix="told-")]
    stats = _trained_again(folder, episodes, 1.0)
    assert stats.logprob_abs_diff is not None
    assert stats.logprob_abs_diff < 1e-5


def test_new_weights_reach_every_process_and_others_are_noticed(
    model: Path, remote: RemoteEngine, served_game: Served
) -> None:
    before = remote.weight_version

    def call() -> set[str]:
        done = remote.generate([[1], [2]], ["a", "b"], [np_rng(1), np_rng(2)], SamplingParams(max_new_tokens=2))
        return {c.weight_version for c in done}

    remote.update_weights(model, "step-1")
    assert call() == {remote.weight_version} == {"step-1"}
    with RemoteEngine(lambda: EngineClient(served_game.urls)) as somebody_else:
        somebody_else.update_weights(model, before)
    with pytest.raises(EngineVersionError, match="other weights"):
        call()
    remote.update_weights(model, before)
    assert call() == {before}


def test_a_batch_of_which_a_call_fails_says_what_the_others_gave(remote: RemoteEngine) -> None:
    prompts = [[1], [10**6], [2]]  # the second holds a token that there is not
    with pytest.raises(EngineRefusedError) as caught:
        remote.generate(prompts, ["a", "b", "c"], [np_rng(i) for i in range(3)], SamplingParams(max_new_tokens=2))
    batch = caught.value.batch
    assert batch is not None
    assert [isinstance(one, Completion) for one in batch] == [True, False, True]
    alone = remote.generate([[2]], ["d"], [np_rng(2)], SamplingParams(max_new_tokens=2))
    assert isinstance(batch[2], Completion)
    assert batch[2].output_ids == alone[0].output_ids


def test_only_a_fresh_generator_has_a_seed() -> None:
    assert seed_of(np_rng("a", 3)) == derive("a", 3)
    used = np_rng("a", 3)
    used.random()
    for bad in (used, np.random.default_rng([1, 2]), np.random.Generator(np.random.MT19937(3))):
        with pytest.raises(UserError, match="cannot draw"):
            seed_of(bad)
