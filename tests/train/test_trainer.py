from __future__ import annotations

from typing import Any

import numpy as np
import plain_torch
import pytest
import torch
from training_examples import (
    assert_close,
    ce_sequence,
    gradients,
    kl_sequence,
    pg_sequence,
    random_weights,
)

from internalize.checkpoints import hf_names
from internalize.errors import UserError
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.trainer import ParallelSpec, Trainer

SPECS = [LossSpec(), LossSpec(temperature=0.7), LossSpec(normaliser="tokens", temperature=1.3)]


def joint_batch(seed: int) -> list[TrainSequence]:
    rng = np.random.default_rng(seed)
    return [
        pg_sequence(rng, 17, 0.8, "a"),
        ce_sequence(rng, 9),
        pg_sequence(rng, 30, -0.8, "b"),
        kl_sequence(rng, 12),
        ce_sequence(rng, 25),
    ]


@pytest.mark.parametrize("tied", [True, False])
def test_four_steps_equal_plain_torch_adamw(make_trainer: Any, config: dict[str, Any], tied: bool) -> None:
    config["tie_word_embeddings"] = tied
    weights = random_weights(config, 0)
    trainer = make_trainer(weights, weight_decay=0.0)
    state = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    optimizer = torch.optim.AdamW(state.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    rng = np.random.default_rng(1)
    for _ in range(4):
        batch = [ce_sequence(rng, n) for n in (23, 7, 41, 2, 16)]
        stats = trainer.train_step(batch, LossSpec(), lr=1e-3)
        optimizer.zero_grad()
        expected = plain_torch.loss(state, config, batch, LossSpec())
        expected.backward()
        norm = torch.nn.utils.clip_grad_norm_(state.values(), 1.0)
        optimizer.step()
        assert stats.loss == pytest.approx(expected.item(), abs=1e-5)
        assert stats.ce_loss == stats.loss
        assert stats.grad_norm == pytest.approx(float(norm), rel=1e-5)
    assert_close(trainer.export_hf(), {k: v.detach() for k, v in state.items()}, 1e-5)


@pytest.mark.parametrize("spec", SPECS)
def test_joint_loss_and_gradient_equal_the_float64_reference(
    make_trainer: Any, config: dict[str, Any], weights: dict[str, torch.Tensor], spec: LossSpec
) -> None:
    trainer = make_trainer(weights, clip_grad=0.0)
    batch = joint_batch(3)
    state = {name: t.double().requires_grad_() for name, t in weights.items()}
    expected = plain_torch.loss(state, config, batch, spec)
    expected.backward()
    stats = trainer.train_step(batch, spec, lr=0.0)
    got = {name: p.main_grad.clone() for name, p in trainer.model.named_parameters()}
    wanted = hf_names.to_megatron({k: v.grad.float() for k, v in state.items()}, config)
    assert stats.loss == pytest.approx(expected.item(), abs=1e-5)
    assert stats.clip_fraction is not None
    assert 0 < stats.clip_fraction < 1
    assert_close(got, wanted, 1e-5)


def test_micro_batches_and_order_change_nothing(make_trainer: Any, weights: dict[str, torch.Tensor]) -> None:
    batch = joint_batch(4)
    whole = gradients(make_trainer(weights, clip_grad=0.0), batch, LossSpec())
    for cap in (1, 20, 45):
        split = gradients(make_trainer(weights, clip_grad=0.0, max_tokens=cap), batch, LossSpec())
        assert_close(split, whole)
    assert_close(gradients(make_trainer(weights, clip_grad=0.0), batch[::-1], LossSpec()), whole)


def test_weight_zero_equals_a_mask_and_integers_equal_floats(
    make_trainer: Any, weights: dict[str, torch.Tensor]
) -> None:
    trainer = make_trainer(weights, clip_grad=0.0)
    tokens = np.random.default_rng(5).integers(0, 40, 12).tolist()
    zero_tail = TrainSequence(tokens, ce_weights=[0.0, 1.0, 2.0, 0.0, 4.0] + [0.0] * 7)
    cut_off = TrainSequence(tokens[:5], ce_weights=[0.0, 1.0, 2.0, 0.0, 4.0])
    integers = TrainSequence(tokens, ce_weights=[0, 1, 2, 0, 4] + [0] * 7)
    first = gradients(trainer, [zero_tail], LossSpec())
    for other in (cut_off, integers):
        again = gradients(trainer, [other], LossSpec())
        assert all(torch.equal(first[name], again[name]) for name in first)


def test_scaling_all_weights_changes_nothing(make_trainer: Any, weights: dict[str, torch.Tensor]) -> None:
    trainer = make_trainer(weights, clip_grad=0.0)
    rng = np.random.default_rng(6)
    batch = [ce_sequence(rng, n) for n in (9, 14)]
    scaled = [TrainSequence(s.tokens, ce_weights=[w * 8 for w in s.ce_weights]) for s in batch]
    assert_close(gradients(trainer, scaled, LossSpec()), gradients(trainer, batch, LossSpec()))


@pytest.mark.parametrize("normaliser", ["constant", "tokens"])
def test_a_joint_step_does_not_dilute_policy_tokens(
    make_trainer: Any, weights: dict[str, torch.Tensor], normaliser: Any
) -> None:
    trainer = make_trainer(weights, clip_grad=0.0)
    spec = LossSpec(normaliser=normaliser)
    batch = joint_batch(7)
    joint = gradients(trainer, batch, spec)
    parts = [
        gradients(trainer, [s for s in batch if getattr(s, stream) is not None], spec)
        for stream in ("pg_mask", "ce_weights", "kl_mask")
    ]
    assert_close(joint, {name: sum(part[name] for part in parts) for name in joint})


@pytest.mark.parametrize("normaliser", ["constant", "tokens"])
def test_one_packed_sequence_an_episode_equals_one_sample_a_call(
    make_trainer: Any, weights: dict[str, torch.Tensor], normaliser: Any
) -> None:
    """While every prompt extends the history before it, one forward pass serves all calls of an episode."""
    rng = np.random.default_rng(8)
    packed, per_call = [], []
    for episode, advantage in (("a", 0.5), ("b", -0.5)):
        tokens: list[int] = []
        mask: list[int] = []
        advantages, logprobs = [], []
        for _ in range(4):
            prompt, output = rng.integers(0, 40, 7).tolist(), rng.integers(0, 40, 5).tolist()
            tokens += prompt + output
            mask += [0] * 7 + [1] * 5
            advantages += [0.0] * 7 + [advantage] * 5
            logprobs += [0.0] * 7 + rng.normal(-3.7, 0.3, 5).tolist()
            n, here = len(tokens), [0] * (len(tokens) - 5) + [1] * 5
            per_call.append(TrainSequence(tokens[:n], None, advantages[:n], logprobs[:n], here, episode=episode))
        packed.append(TrainSequence(tokens, None, advantages, logprobs, mask, episode=episode))
    trainer = make_trainer(weights, clip_grad=0.0)
    spec = LossSpec(normaliser=normaliser)
    one = trainer.train_step(packed, spec, lr=0.0)
    one_gradient = {name: p.main_grad.clone() for name, p in trainer.model.named_parameters()}
    many = trainer.train_step(per_call, spec, lr=0.0)
    many_gradient = {name: p.main_grad.clone() for name, p in trainer.model.named_parameters()}
    assert many.tokens > 2 * one.tokens
    assert one.pg_loss == pytest.approx(many.pg_loss, abs=2e-6)
    assert one.logprob_abs_diff == pytest.approx(many.logprob_abs_diff, abs=2e-6)
    assert_close(one_gradient, many_gradient, 5e-6)


def test_zero_advantages_leave_weights_and_moments_untouched(
    make_trainer: Any, weights: dict[str, torch.Tensor]
) -> None:
    rng = np.random.default_rng(9)
    trainer = make_trainer(weights, weight_decay=0.1)
    trainer.train_step([ce_sequence(rng, 12)], LossSpec(), lr=1e-2)  # momentum that would move the weights
    before = snapshot(trainer)
    stats = trainer.train_step([pg_sequence(rng, 9, 0.0, "a"), pg_sequence(rng, 14, 0.0, "b")], LossSpec(), lr=1e-2)
    assert stats.skipped
    assert stats.tokens == 0
    assert trainer.steps == 1
    after = snapshot(trainer)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def snapshot(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Weights, both moments and step counts, by name."""
    state = {f"weight {k}": v for k, v in trainer.export_hf().items()}
    inner = trainer.optimizer.optimizer
    for name, parameter in trainer.model.named_parameters():
        for key, value in inner.state[parameter].items():
            state[f"{key} {name}"] = value.clone()
    assert any(key.startswith("exp_avg_sq") for key in state)
    return state


def test_a_silent_group_beside_a_speaking_one_still_counts_as_episodes(
    make_trainer: Any, weights: dict[str, torch.Tensor]
) -> None:
    rng = np.random.default_rng(10)
    loud, silent = pg_sequence(rng, 12, 1.0, "a"), pg_sequence(rng, 20, 0.0, "b")
    trainer = make_trainer(weights, clip_grad=0.0)
    alone = gradients(trainer, [loud], LossSpec())
    both = trainer.train_step([loud, silent], LossSpec(), lr=0.0)
    assert both.tokens < 12, "a sequence without gradient is not computed"
    halved = {name: p.main_grad * 2 for name, p in trainer.model.named_parameters()}
    assert_close(halved, alone)


def test_length_does_not_bias_a_token(make_trainer: Any, config: dict[str, Any]) -> None:
    """Two equal predictions, one in an episode of 10 tokens and one of 100, get the same gradient weight."""
    from internalize.train.forward import micro_batch_loss
    from internalize.train.losses import normalisers
    from internalize.train.packing import pack

    make_trainer()  # holds the process group that Megatron's cross entropy asks for
    batch = [
        TrainSequence([1] * (n + 1), None, [0.0] + [0.7] * n, [-3.0] * (n + 1), [0] + [1] * n, episode=str(n))
        for n in (10, 100)
    ]
    spec = LossSpec()
    (packed,) = pack(batch, 1000)
    scores = torch.zeros(1, packed.size, config["vocab_size"], requires_grad=True)
    micro_batch_loss(spec, normalisers(batch, spec), packed, scores)[0].backward()
    sizes = scores.grad[0].norm(dim=-1)
    assert sizes.min() > 0
    assert float(sizes.max() / sizes.min()) == pytest.approx(1.0, abs=1e-5)


def test_rollout_statistics_describe_the_policy_before_the_update(
    make_trainer: Any, config: dict[str, Any], weights: dict[str, torch.Tensor]
) -> None:
    rng = np.random.default_rng(11)
    sequence = pg_sequence(rng, 15, 0.5, "a")
    spec = LossSpec(temperature=0.8)
    scores = (plain_torch.logits(weights, config, sequence.tokens) / 0.8).log_softmax(-1)
    exact = [0.0] + [float(scores[t - 1, sequence.tokens[t]]) for t in range(1, 15)]
    trainer = make_trainer(weights)
    on_policy = TrainSequence(sequence.tokens, None, sequence.advantages, exact, sequence.pg_mask, episode="a")
    stats = trainer.train_step([on_policy], spec, lr=1e-2)
    assert stats.logprob_abs_diff < 1e-5
    assert stats.ratio_mean == pytest.approx(1.0, abs=1e-5)
    assert stats.clip_fraction == 0.0
    assert trainer.train_step([on_policy], spec, lr=1e-2).logprob_abs_diff > 1e-3


def test_a_trainer_disturbs_no_random_state_and_is_not_disturbed(make_trainer: Any) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = make_trainer(seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    second = make_trainer(seed=3)
    other = make_trainer(seed=4).export_hf()
    weights = first.export_hf()
    assert all(torch.equal(weights[name], tensor) for name, tensor in second.export_hf().items())
    assert any(not torch.equal(weights[name], tensor) for name, tensor in other.items())


def test_another_parallel_shape_is_refused_in_words(config: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="parallel") as error:
        Trainer(config, parallel=ParallelSpec(tp=2))
    assert error.value.got
