"""SFT and Dr.GRPO steps against TRL's SFTTrainer and GRPOTrainer on the same model, weights, data and optimizer.

Not a test: it needs TRL, which nothing else here needs. In an environment of its own:

    python -m venv bench && bench/bin/pip install torch==2.13.0
    bench/bin/pip install -e . 'transformers>=5.24,<6' 'trl==1.16.0'
    bench/bin/python benchmarks/train.py

Everything is CPU seconds of one thread (process time), and every ratio compares measurements of this run, taken in
turns, so that a busy machine disturbs both alike; the median over all steps but each trainer's first is shown.

The model is a random Qwen3, 6 layers of 192, 2048 words, fp32. A batch is 16 sequences of 40 to 400 tokens in random
order, of which the last 24 to 64 are trained. AdamW 1e-3 (0.9, 0.95), gradients clipped at 1. TRL runs without what its
defaults would cost it here (bf16, gradient checkpointing) and in the faster of two cuts of the batch: 16 at once, or 4
times 4 (less padding; no packing, which TRL offers with flash attention only). What is compared:

- SFT: one optimizer step on the same 16 sequences; tokens are real ones, padding does not count. This is the fair
  setting: the rows of a study are turns with prompts of very different lengths in an order that the experiment fixes,
  and TRL on a CPU has no way but to pad them (its padding-free mode needs flash attention).
- SFT, even lengths: the same where every sequence has 220 tokens, so that TRL pads nothing: what is left of the ratio
  is the trainers' own cost. The worst case for us, and no study's.
- Dr.GRPO update: one optimizer step (`loss_type="dr_grpo"`, `scale_rewards="none"`, constant 64) on the same given
  samples in groups of 4 that share a prompt; TRL gets them through its `rollout_func`.
- Dr.GRPO step: the same with each system's own sampling of 64 tokens (transformers' `generate`; our engine, weights
  handed over).

Losses and gradient norms of every step of the first two must agree.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before torch is imported
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import torch
import transformers
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models, pre_tokenizers
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from internalize.engine.local import LocalEngine
from internalize.engine.protocol import SamplingParams
from internalize.seeds import np_rng
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.trainer import OptimizerSpec, Trainer

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": 2048,
    "hidden_size": 192,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 576,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
BATCH, GROUP, NEW = 16, 4, 64
LR = 1e-3


@dataclass
class Run:
    """What one trainer did: CPU seconds, loss and gradient norm of each step."""

    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Sample:
    """A prompt, what was sampled after it, and its reward; in SFT the reward is not read."""

    prompt: list[int]
    completion: list[int]
    reward: float

    @property
    def tokens(self) -> list[int]:
        return [*self.prompt, *self.completion]

    def mask(self, value: float = 1.0) -> list[Any]:
        return [0] * len(self.prompt) + [value] * len(self.completion)


def batches(steps: int, group: int, even: bool = False) -> list[list[Sample]]:
    """Batches of groups that share a prompt; lengths are spread evenly over 40 to 400, or all 220."""
    made = []
    for step in range(steps):
        rng = np_rng("benchmark", step)
        batch = []
        for _ in range(BATCH // group):
            prompt = rng.integers(2, 2048, 176 if even else int(rng.integers(16, 337))).tolist()
            for _ in range(group):
                completion = rng.integers(2, 2048, 44 if even else int(rng.integers(24, NEW + 1))).tolist()
                batch.append(Sample(prompt, completion, float(rng.normal())))
        made.append(batch)
    return made


def hf_model() -> Any:
    """The model with its weights; every trainer starts from a copy of them."""
    torch.manual_seed(0)
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**CONFIG)).float()


def tokenizer() -> Any:
    """Words are their ids: TRL asks for a tokenizer, nothing here is tokenised."""
    words = {str(i): i for i in range(CONFIG["vocab_size"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="0", eos_token="1")


# ---- TRL ---
class Watch(transformers.TrainerCallback):
    """CPU seconds of each step, from its begin to its end, and what TRL logs of it."""

    def __init__(self) -> None:
        self.run = Run()
        self._last = 0.0

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self._last = time.process_time()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        now = time.process_time()  # from the end of the step before: batches are collated (and sampled) in between
        self.run.seconds.append(now - self._last)
        self._last = now

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if logs and "grad_norm" in logs:
            self.run.losses.append(float(logs["loss"]))
            self.run.norms.append(float(logs["grad_norm"]))
        self._last = time.process_time()


def shared_settings(folder: str, micro_batch: int) -> dict[str, Any]:
    return {
        "output_dir": folder,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": BATCH // micro_batch,
        "learning_rate": LR,
        "lr_scheduler_type": "constant",
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "adam_epsilon": 1e-8,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "num_train_epochs": 1,
        "dataloader_num_workers": 0,
    }


@contextmanager
def quiet() -> Iterator[str]:
    """A folder for a trainer's output; its printed logs are dropped."""
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        yield folder


def trl_sft(work: list[list[Sample]], micro_batch: int) -> Run:
    """SFTTrainer on pre-tokenised rows with a completion mask, in the order given."""
    rows = [{"input_ids": s.tokens, "completion_mask": [int(m) for m in s.mask()]} for batch in work for s in batch]
    watch = Watch()
    with quiet() as folder:
        arguments = SFTConfig(
            **shared_settings(folder, micro_batch),
            train_sampling_strategy="sequential",
            completion_only_loss=True,
            max_length=None,
        )
        SFTTrainer(
            model=hf_model(),
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer(),
            callbacks=[watch],
        ).train()
    return watch.run


def trl_grpo(work: list[list[Sample]], micro_batch: int, sample: bool = False) -> Run:
    """GRPOTrainer; the samples are given, or it samples by itself."""
    groups = [batch[i : i + GROUP] for batch in work for i in range(0, BATCH, GROUP)]
    prompts = [" ".join(map(str, group[0].prompt)) for group in groups]
    of_prompt = dict(zip(prompts, groups, strict=True))
    rewards = {tuple(s.completion): s.reward for group in groups for s in group}
    draw = np.random.default_rng(0)

    def rollout(asked: list[str], trainer: Any) -> dict[str, Any]:
        taken: dict[str, int] = {}
        chosen = []
        for prompt in asked:
            taken[prompt] = taken.get(prompt, -1) + 1
            chosen.append(of_prompt[prompt][taken[prompt]])
        return {
            "prompt_ids": [s.prompt for s in chosen],
            "completion_ids": [s.completion for s in chosen],
            "logprobs": [[0.0] * len(s.completion) for s in chosen],
        }

    def reward(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
        return [float(draw.normal()) if sample else rewards[tuple(ids)] for ids in completion_ids]

    watch = Watch()
    with quiet() as folder:
        arguments = GRPOConfig(
            **shared_settings(folder, micro_batch),
            loss_type="dr_grpo",
            scale_rewards="none",
            num_generations=GROUP,
            max_completion_length=NEW,
            shuffle_dataset=False,
            beta=0.0,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
        )
        GRPOTrainer(
            model=hf_model(),
            args=arguments,
            reward_funcs=reward,
            train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
            processing_class=tokenizer(),
            rollout_func=None if sample else rollout,
            callbacks=[watch],
        ).train()
    return watch.run


# ---- ours ---
def our_run(work: list[list[Sample]], step: Callable[[Trainer, LocalEngine, list[Sample]], Any], engine: bool) -> Run:
    """A fresh trainer through all batches; `step` returns the stats, and the seconds that are not its own."""
    run = Run()
    weights = {name: tensor.detach() for name, tensor in hf_model().state_dict().items()}
    optimizer = OptimizerSpec(lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, clip_grad=1.0)
    with Trainer(CONFIG, optimizer) as trainer:
        trainer.load_hf(weights)
        player = LocalEngine(CONFIG, slots=BATCH if engine else 1, max_len=512)
        for batch in work:
            start = time.process_time()
            stats, aside = step(trainer, player, batch)
            run.seconds.append(time.process_time() - start - aside)
            run.losses.append(stats.loss)
            run.norms.append(stats.grad_norm)
    return run


def our_sft(work: list[list[Sample]]) -> Run:
    def step(trainer: Trainer, engine: LocalEngine, batch: list[Sample]) -> Any:
        rows = [TrainSequence(s.tokens, ce_weights=s.mask(1.0), episode=str(i)) for i, s in enumerate(batch)]
        return trainer.train_step(rows, LossSpec(), LR), 0.0

    return our_run(work, step, engine=False)


def policy_rows(batch: list[Sample], logprobs: list[list[float]]) -> list[TrainSequence]:
    rows = []
    for i, (sample, said) in enumerate(zip(batch, logprobs, strict=True)):
        group = batch[i - i % GROUP : i - i % GROUP + GROUP]
        advantage = sample.reward - sum(s.reward for s in group) / GROUP
        mask = sample.mask(1)
        rows.append(TrainSequence(sample.tokens, None, sample.mask(advantage), said, mask, episode=str(i)))
    return rows


SPEC = LossSpec(temperature=1.0, clip_low=0.2, clip_high=0.2, normaliser="constant", tokens_per_episode=float(NEW))


def our_grpo(work: list[list[Sample]]) -> Run:
    def step(trainer: Trainer, engine: LocalEngine, batch: list[Sample]) -> Any:
        start = time.process_time()  # log-probs come with sampling; here the samples are given, so they are made up for
        engine.update_weights(trainer.export_hf(), "now")
        said = engine.token_logprobs([s.tokens for s in batch])
        aside = time.process_time() - start
        return trainer.train_step(policy_rows(batch, said), SPEC, LR), aside

    return our_run(work, step, engine=False)


def our_grpo_with_play(work: list[list[Sample]]) -> Run:
    sampling = SamplingParams(temperature=1.0, max_new_tokens=NEW, stop_ids=(1,))
    draw = np.random.default_rng(0)

    def step(trainer: Trainer, engine: LocalEngine, batch: list[Sample]) -> Any:
        engine.update_weights(trainer.export_hf(), "now")
        names = [str(i) for i in range(len(batch))]
        rngs = [np_rng("play", name) for name in names]
        found = engine.generate([s.prompt for s in batch], names, rngs, sampling)
        played = [Sample(s.prompt, c.output_ids, float(draw.normal())) for s, c in zip(batch, found, strict=True)]
        said = [[0.0] * len(s.prompt) + c.logprobs for s, c in zip(batch, found, strict=True)]
        return trainer.train_step(policy_rows(played, said), SPEC, LR), 0.0

    return our_run(work, step, engine=True)


# ---- comparison ---
def median(runs: list[Run]) -> float:
    return statistics.median(s for run in runs for s in run.seconds[1:])


def gap(ours: Run, theirs: Run) -> dict[str, float]:
    """Largest differences of a step's loss, and of its gradient norm relative to its size."""
    return {
        "loss": max(abs(a - b) for a, b in zip(ours.losses, theirs.losses, strict=True)),
        "grad_norm": max(abs(a - b) / b for a, b in zip(ours.norms, theirs.norms, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5, help="optimizer steps of each trainer in each turn")
    parser.add_argument("--turns", type=int, default=3, help="turns that each trainer takes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    disable_progress_bars()
    rows, even, work = batches(options.steps, 1), batches(options.steps, 1, True), batches(options.steps, GROUP)
    tokens, flat = (statistics.median(sum(len(s.tokens) for s in batch) for batch in x[1:]) for x in (rows, even))
    cases: dict[str, tuple[str, float, Callable[[], Run], Callable[[int], Run]]] = {
        "sft": ("tokens", tokens, lambda: our_sft(rows), lambda m: trl_sft(rows, m)),
        "sft_even_lengths": ("tokens", flat, lambda: our_sft(even), lambda m: trl_sft(even, m)),
        "dr_grpo_update": ("samples", BATCH, lambda: our_grpo(work), lambda m: trl_grpo(work, m)),
        "dr_grpo_step": ("samples", BATCH, lambda: our_grpo_with_play(work), lambda m: trl_grpo(work, m, True)),
    }
    report: dict[str, Any] = {}
    for name, (unit, amount, ours, theirs) in cases.items():
        mine: list[Run] = []
        cuts: dict[int, list[Run]] = {BATCH: [], GROUP: []}
        for _ in range(options.turns):
            mine.append(ours())
            for micro_batch, runs in cuts.items():
                runs.append(theirs(micro_batch))
        best = min(cuts, key=lambda cut: median(cuts[cut]))
        row = {
            "unit": f"{unit} per CPU second",
            "ours": round(amount / median(mine), 1),
            "trl": round(amount / median(cuts[best]), 1),
            "ratio": round(median(cuts[best]) / median(mine), 2),
            "trl_micro_batch": best,
        }
        if name != "dr_grpo_step":  # there each samples its own
            row |= {f"largest_{key}_difference": value for key, value in gap(mine[0], cuts[best][0]).items()}
        report[name] = row
        if not options.json:
            print(name, json.dumps(row), flush=True)
    if options.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
