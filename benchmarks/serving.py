"""The local engine against transformers' `generate`, and episodes with and without prefix reuse.

Not a test: run `python benchmarks/serving.py` (about two CPU minutes; transformers is a development
dependency). Everything is CPU seconds of one thread, and every ratio compares two measurements of this run, taken
in turns, so that a busy machine disturbs both alike. The median of the turns is shown.

The model is of the size that notes on serving engines used: random Qwen3, 8 layers of 256, 4096 words; prompts
of 300 to 600 random tokens, 60 new ones, fp32, temperature 1, ids and log-probs returned by both. Episodes are
ten calls of one conversation; each adds 8 tokens that are told to 16 that are sampled, after a first prompt of
300 to 400.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before torch is imported

import numpy as np
import torch
from torch import Tensor

from internalize.engine.batch import Call
from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Completion, SamplingParams
from internalize.engine.qwen3 import hf_shapes
from internalize.engine.scheduler import Scheduler
from internalize.seeds import derive, np_rng

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "tie_word_embeddings": True,
    "vocab_size": 4096,
    "max_position_embeddings": 1024,
}
SAMPLING = SamplingParams(max_new_tokens=60)
TURN = SamplingParams(max_new_tokens=16)
TURNS, TOLD = 10, 8


def random_state(seed: int) -> dict[str, Tensor]:
    """Weights by HF name."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * 0.02 + (1.0 if len(shape) == 1 else 0.0)
        for name, shape in hf_shapes(CONFIG).items()
    }


def prompts(count: int, low: int, high: int) -> list[list[int]]:
    """Random tokens, `low` to `high` of them, spread evenly."""
    lengths = np.linspace(low, high, count).astype(int)
    return [np_rng("prompt", i, int(n)).integers(0, CONFIG["vocab_size"], n).tolist() for i, n in enumerate(lengths)]


def cpu_seconds(act: Callable[[], int]) -> tuple[int, float]:
    """(what `act` counted, CPU seconds of the whole process)."""
    began = time.process_time()
    return act(), time.process_time() - began


# ---- tokens ---
def by_generate(engine: LocalEngine, given: Sequence[list[int]]) -> int:
    """All rows in lockstep, nothing cached; returns the new tokens."""
    engine.flush()
    names = [str(i) for i in range(len(given))]
    done = engine.generate(given, names, [np_rng(i) for i in range(len(given))], SAMPLING)
    return sum(len(c.output_ids) for c in done)


def by_scheduler(scheduler: Scheduler, given: Sequence[list[int]]) -> int:
    """The same through continuous batching, as the server runs it; returns the new tokens."""
    scheduler.flush().result()
    calls = [Call(f"r{i}", p, SAMPLING, seed=i, session=f"s{i}") for i, p in enumerate(given)]
    futures = [scheduler.submit(call) for call in calls]
    return sum(len(f.result().output_ids) for f in futures)


def by_transformers(model: Any, given: Sequence[list[int]]) -> int:
    """Left-padded `generate` with a log-prob of every sampled token; returns the new tokens."""
    width = max(map(len, given))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in given])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in given])
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=SAMPLING.max_new_tokens,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        new = out.sequences[:, width:]
        for t, logits in enumerate(out.logits):
            torch.log_softmax(logits.float(), -1).gather(1, new[:, t : t + 1])
    return new.numel()


# ---- episodes ---
def play(scheduler: Scheduler, count: int, reuse: bool) -> int:
    """`count` episodes side by side, each call sent when its turn before is over; returns the episodes."""

    def ask(episode: int, turn: int, prompt: list[int]) -> Future[Completion]:
        session = f"e{episode}" if reuse else f"e{episode}/{turn}"
        return scheduler.submit(Call(f"{episode}/{turn}", prompt, TURN, derive(episode, turn), session))

    scheduler.flush().result()
    talks = prompts(count, 300, 400)
    for turn in range(TURNS):
        futures = [ask(i, turn, talk) for i, talk in enumerate(talks)]
        for i, future in enumerate(futures):
            told = np_rng("told", i, turn).integers(0, CONFIG["vocab_size"], TOLD).tolist()
            talks[i] = [*talks[i], *future.result().output_ids, *told]
    return count


def main() -> None:
    """Print a table; with --json, one object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3, help="measurements of each, taken in turns")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)

    from transformers import Qwen3Config, Qwen3ForCausalLM

    state = random_state(0)
    engine, owned = (LocalEngine(CONFIG, slots=64, max_len=1024) for _ in range(2))
    for one in (engine, owned):
        one.update_weights(state, "random")
    model = Qwen3ForCausalLM(Qwen3Config(**CONFIG)).eval()
    model.load_state_dict(state, strict=False)
    model.tie_weights()
    scheduler = Scheduler(owned).start()
    result: dict[str, float] = {}

    def measure(acts: dict[str, Callable[[], int]], per: float) -> None:
        seen: dict[str, list[float]] = {name: [] for name in acts}
        for _ in range(options.turns):
            for name, act in acts.items():
                count, seconds = cpu_seconds(act)
                seen[name].append(per * count / seconds)
        result.update({name: statistics.median(values) for name, values in seen.items()})

    for warm in (lambda g: by_generate(engine, g), lambda g: by_scheduler(scheduler, g)):
        warm(prompts(2, 20, 30))
    by_transformers(model, prompts(2, 20, 30))
    for batch in options.batches:
        given = prompts(batch, 300, 600) if batch > 1 else prompts(1, 450, 450)
        measure(
            {
                f"tokens/{batch}/lockstep": lambda given=given: by_generate(engine, given),
                f"tokens/{batch}/continuous": lambda given=given: by_scheduler(scheduler, given),
                f"tokens/{batch}/transformers": lambda given=given: by_transformers(model, given),
            },
            per=1.0,
        )
        for way in ("lockstep", "continuous"):
            ratio = result[f"tokens/{batch}/{way}"] / result[f"tokens/{batch}/transformers"]
            result[f"ratio/{batch}/{way}"] = ratio
    measure(
        {
            "episodes/reuse": lambda: play(scheduler, options.episodes, reuse=True),
            "episodes/no reuse": lambda: play(scheduler, options.episodes, reuse=False),
        },
        per=60.0,
    )
    result["ratio/reuse"] = result["episodes/reuse"] / result["episodes/no reuse"]
    scheduler.stop()
    if options.json:
        print(json.dumps(result, indent=1))
        return
    print(f"load average {os.getloadavg()[0]:.1f}, median of {options.turns}\n")
    print("new tokens a CPU second, prefill included")
    print(f"{'batch':>6}{'lockstep':>11}{'continuous':>12}{'transformers':>14}{'ratios':>15}")
    for batch in options.batches:
        row = [result[f"tokens/{batch}/{way}"] for way in ("lockstep", "continuous", "transformers")]
        ratios = [result[f"ratio/{batch}/{way}"] for way in ("lockstep", "continuous")]
        print(f"{batch:>6}{row[0]:>11.0f}{row[1]:>12.0f}{row[2]:>14.0f}{ratios[0]:>9.2f}{ratios[1]:>6.2f}")
    print(f"\nepisodes of {TURNS} calls a CPU minute, {options.episodes} side by side")
    print(f"  with prefix reuse    {result['episodes/reuse']:8.1f}")
    print(f"  without              {result['episodes/no reuse']:8.1f}   ratio {result['ratio/reuse']:.2f}")


if __name__ == "__main__":
    main()
