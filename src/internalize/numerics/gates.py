"""The numeric gates of a study, run on a model folder.

Invariant: each gate builds its subjects with the same code that an arm uses (engine, trainer, attention, weight update,
moment reset); only the judges are other code. Nothing is written outside `work`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from internalize.engine.folder import ModelFolder
from internalize.engine.local import LocalEngine
from internalize.errors import UserError
from internalize.numerics.attention import ATTENTION, AttentionShape, attention_kernel
from internalize.numerics.delta import DELTA, DeltaShape, delta_kernel
from internalize.numerics.engines import Subject, built, cutting, engine_gate, fixed_prompts, local_engine
from internalize.numerics.packed import packed_gate
from internalize.numerics.reference import Reference, TorchReference, TransformersReference
from internalize.numerics.verdict import Case, Verdict
from internalize.seeds import rng

LR = 1e-3
"""Learning rate of the steps that must move the weights."""
Spec = Mapping[str, Any]


def run_gate(spec: Spec, model: Path, work: Path) -> Verdict:
    """Runs one gate.

    Args:
        spec: `study_numerics.numerics_specs`.
        model: HF model folder.
        work: folder for what a gate writes (a checkpoint); the caller deletes it.

    Raises:
        UserError: the gate cannot be run here (a package or a device is missing).
    """
    if spec.get("device") == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"numeric gate `{spec['gate']}` needs a GPU",
            where="numerics.device",
            expected="a CUDA device",
            got="none in this process",
            fix="run it on a GPU node, or set numerics.device: cpu",
        )
    return GATES[spec["gate"]](spec, model, work)


def _attention(spec: Spec, model: Path, work: Path) -> Verdict:
    config = ModelFolder(model).config()
    own, kept = layer_kinds(config, "full_attention")
    heads, groups = int(config["num_attention_heads"]), int(config["num_key_value_heads"])
    sizes = sorted({int(config.get("head_dim") or config["hidden_size"] // heads), *spec["head_dims"]})
    shapes = [
        AttentionShape(heads // tensor, max(1, groups // tensor), size, tuple(spec["lengths"]))
        for tensor in spec["tensor"]
        for size in sizes
    ]
    layer = f"core attention `{spec['backend']}` of {kept or f'layers 0-{own - 1}'}"
    return packed_gate(ATTENTION, attention_kernel(spec["backend"]), shapes, layer=layer, **_limits(spec))


def _delta(spec: Spec, model: Path, work: Path) -> Verdict:
    config: Any = ModelFolder(model).config()
    _, kept = layer_kinds(config, "linear_attention")
    shape = DeltaShape(
        int(config.get("linear_num_value_heads", spec["heads"])),
        int(config.get("linear_key_head_dim", spec["head_dim"])),
        int(config.get("linear_value_head_dim", spec["head_dim"])),
        tuple(spec["lengths"]),
    )
    layer = f"gated delta rule `{spec['backend']}`" + (f" of {kept}" if kept else "")
    return packed_gate(DELTA, delta_kernel(spec["backend"]), [shape], layer=layer, **_limits(spec))


def _limits(spec: Spec) -> dict[str, Any]:
    return {key: spec[key] for key in ("tolerance", "dtype", "device")}


def _engine(spec: Spec, model: Path, work: Path) -> Verdict:
    config, state = ModelFolder(model).config(), ModelFolder(model).state()
    reference: Reference
    reference = TorchReference(config, state) if spec["reference"] == "torch" else TransformersReference(model)
    prompts = fixed_prompts(int(config["vocab_size"]), spec["prompts"])
    room = max(spec["prompts"]) + spec["new_tokens"]

    def build(part: Mapping[str, Any], weights: Mapping[str, Tensor]) -> LocalEngine:
        return local_engine(part, weights, len(prompts), room)

    def judge(subject: Subject) -> Verdict:
        return engine_gate([subject], reference, prompts, new_tokens=spec["new_tokens"], tolerance=spec["tolerance"])

    cases = judge(built("local", config, state, build)).cases
    for shape in spec.get("trainers", ()):
        from internalize.numerics.trainers import open_trainer, said

        with open_trainer(shape, config, model, work, len(prompts), room) as runtime:
            runtime.sync("numerics")
            cut = cutting(config, runtime.trainer.export_hf, build)
            cases += judge(Subject(f"local, weights from a trainer of {said(shape)}", runtime.engine, cut)).cases
    return Verdict("engine", cases)


def _logprobs(spec: Spec, model: Path, work: Path) -> Verdict:
    from internalize.numerics.logprobs import logprobs_gate
    from internalize.numerics.trainers import learner, open_trainer, said

    config = ModelFolder(model).config()
    prompts = fixed_prompts(int(config["vocab_size"]), spec["prompts"])
    room = max(spec["prompts"]) + spec["new_tokens"]
    cases: tuple[Case, ...] = ()
    for shape in ({}, *spec.get("trainers", ())):
        with open_trainer(shape, config, model, work, len(prompts), room) as runtime:
            cases += logprobs_gate(
                [Subject(f"local, trainer of {said(shape)}" if shape else "local", runtime.engine)],
                learner(runtime),
                prompts,
                temperatures=spec["temperatures"],
                new_tokens=spec["new_tokens"],
                rounds=spec["rounds"],
                tolerance=spec["tolerance"],
            ).cases
    return Verdict("logprobs", cases)


def _moments(spec: Spec, model: Path, work: Path) -> Verdict:
    from internalize.numerics.moments import moments_gate
    from internalize.train.logprobs import policy_sequence
    from internalize.train.trainer import LossSpec, Trainer

    config, state = ModelFolder(model).config(), ModelFolder(model).state()
    batches = [
        [policy_sequence(tokens, episode=f"{number}") for tokens in fixed_prompts(int(config["vocab_size"]), lengths)]
        for number, lengths in enumerate(([20, 33], [41], [15, 27]))
    ]
    loss = LossSpec(clip_low=0.99, clip_high=1e9)
    with Trainer(config) as trainer, Trainer(config) as fresh, Trainer(config) as other:
        trainer.load_hf(state)

        def boundary() -> Trainer:
            after = trainer
            if spec["through_checkpoint"]:
                trainer.save(work / "boundary")
                after = other
                after.load(work / "boundary")
            after.reset_optimizer()
            return after

        return moments_gate(
            trainer, fresh, boundary, batches[:2], batches[2], loss=loss, lr=LR, tolerance=spec["tolerance"]
        )


def _sync(spec: Spec, model: Path, work: Path) -> Verdict:
    from internalize.numerics.sync import sync_gate

    config, state = ModelFolder(model).config(), ModelFolder(model).state()
    names = [f"local {number}" for number in range(spec["engines"])]
    engines = {name: local_engine(config, state, 1, 8) for name in names}
    after = _moved(state)  # as after an optimizer step: every tensor differs from what the engines hold
    for engine in engines.values():
        engine.update_weights(after, "numerics-1")
    return sync_gate(after, {name: engine.served_digests for name, engine in engines.items()}, torch.float32)


def _moved(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights with every tensor changed a little."""
    factor = 1.0 + rng("numerics", "sync").uniform(0.001, 0.01)
    return {name: tensor.float() * factor for name, tensor in state.items()}


def layer_kinds(config: Mapping[str, Any], kind: str) -> tuple[int, str]:
    """Number of decoder layers, and those of a kind in words where the config distinguishes kinds."""
    kinds = config.get("layer_types") or []
    at = [str(number) for number, found in enumerate(kinds) if found == kind]
    few = ", ".join(at if len(at) <= 6 else [*at[:3], "...", at[-1]])
    return int(config["num_hidden_layers"]), f"layers {few}" if at else ""


GATES: dict[str, Callable[[Spec, Path, Path], Verdict]] = {
    "attention": _attention,
    "delta": _delta,
    "engine": _engine,
    "logprobs": _logprobs,
    "moments": _moments,
    "sync": _sync,
}
