"""The study's `numerics` section: which numeric gates stand in front of the arms, and what they allow.

Invariant: a gate's spec holds what its verdict depends on, the versions of the libraries included, and nothing else;
a study without the section has no gates and no job for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from internalize.numerics.versions import library_versions
from internalize.study_model import Count, Settings

if TYPE_CHECKING:
    from internalize.study import Study

GateName = Literal["attention", "delta", "engine", "logprobs", "moments", "sync"]
GATES: tuple[GateName, ...] = ("attention", "delta", "engine", "logprobs", "moments", "sync")
Tolerance = Annotated[float, Field(ge=0)]
Lengths = Annotated[list[Count], Field(min_length=1)]
Dtype = Literal["float32", "bfloat16", "float16"]
SHAPE = {"tensor", "sequence_parallel", "precision"}
"""Keys of an arm's `parallel` that the gates `engine` and `logprobs` run with, besides one rank in fp32."""


class AttentionNumerics(Settings):
    """Attention backward beside torch's math kernel in float64."""

    backend: Literal["sdpa", "flash", "te"] = "sdpa"
    """The trainer's core attention: torch SDPA, flash-attn 2, or TransformerEngine."""
    lengths: Lengths = [1, 17, 64, 180]
    """Tokens of the packed sequences."""
    head_dims: list[Count] = [256]
    """Head sizes to check besides the model's."""
    tensor: Lengths = [1]
    """Tensor-parallel sizes; each rank has its share of the heads."""
    dtype: Dtype = "float32"
    """Type that the trainer computes in."""
    tolerance: Tolerance = 1e-4
    """Greatest relative error of a head's output or gradient (bfloat16: about 0.03)."""


class DeltaNumerics(Settings):
    """Gated-delta-rule backward beside its recurrence in float64."""

    backend: Literal["torch", "megatron", "fla"] = "megatron"
    """The trainer's rule: the chunked form of this package, megatron-core's deterministic form, or fla's kernel."""
    lengths: Lengths = [1, 17, 64, 130]
    """Tokens of the packed sequences."""
    heads: Count = 2
    """Heads, where the model's config does not say."""
    head_dim: Count = 64
    """Key and value size of a head, where the model's config does not say."""
    dtype: Dtype = "float32"
    """Type that the trainer computes in."""
    tolerance: Tolerance = 1e-4
    """Greatest relative error of a head's output or gradient (bfloat16: about 0.03)."""


class EngineNumerics(Settings):
    """Engine forward beside the model's definition, greedy, on fixed prompts."""

    reference: Literal["torch", "transformers"] = "torch"
    """`torch`: this package's float64 reference (dense Qwen3); `transformers`: whatever it makes of the folder."""
    prompts: Lengths = [3, 40, 150]
    """Tokens of the prompts."""
    new_tokens: Count = 8
    """Tokens to generate."""
    tolerance: Tolerance = 1e-3
    """Greatest difference of a log-prob (bfloat16: about 0.2)."""


class LogprobNumerics(Settings):
    """Trainer beside engine on sampled tokens, at learning rate 0."""

    temperatures: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)] = [1.0, 0.7]
    """Sampling temperatures."""
    prompts: Lengths = [8, 24, 60, 100]
    """Tokens of the prompts."""
    new_tokens: Count = 12
    """Tokens to sample."""
    rounds: Count = 2
    """Rounds of sync, sample and optimizer step."""
    tolerance: Tolerance = 1e-4
    """Greatest mean difference (bfloat16: 0.05)."""


class MomentsNumerics(Settings):
    """The first optimizer step after the change from SFT to RL beside a new optimizer's."""

    through_checkpoint: bool = True
    """True: the trainer is saved and loaded at the boundary, as between two jobs."""
    tolerance: Tolerance = 1e-4
    """Greatest relative difference of a weight's change (measured: one rank 0, four ranks 2e-6, kept moments 1)."""


class SyncNumerics(Settings):
    """Hashes of what each engine serves beside the trainer's weights."""

    engines: Count = 2
    """Engines to update."""


class Numerics(Settings):
    """Numeric gates, run before the arms; a gate that fails stops the study in front of them."""

    gates: Annotated[list[GateName], Field(min_length=1)] = ["attention", "engine", "logprobs", "moments", "sync"]
    """Which gates; `delta` is for models with gated-delta-rule layers."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the kernels run."""
    attention: AttentionNumerics = AttentionNumerics()
    """Gate `attention`."""
    delta: DeltaNumerics = DeltaNumerics()
    """Gate `delta`."""
    engine: EngineNumerics = EngineNumerics()
    """Gate `engine`."""
    logprobs: LogprobNumerics = LogprobNumerics()
    """Gate `logprobs`."""
    moments: MomentsNumerics = MomentsNumerics()
    """Gate `moments`."""
    sync: SyncNumerics = SyncNumerics()
    """Gate `sync`."""


def chosen_gates(numerics: Numerics | None) -> list[GateName]:
    """The gates of a study, in their own order; none without the section."""
    return [gate for gate in GATES if numerics is not None and gate in numerics.gates]


def numerics_specs(study: Study, gates: Iterable[GateName] | None = None) -> dict[str, dict[str, Any]]:
    """Gate -> its spec; those of the study unless `gates` names others."""
    numerics = study.numerics or Numerics()
    wanted = chosen_gates(study.numerics) if gates is None else list(gates)
    trainers = _trainers(study) if {"engine", "logprobs"} & {*wanted} else []
    versions = library_versions()
    return {gate: {"gate": gate, **_spec(numerics, gate, trainers), "versions": versions} for gate in wanted}


def _spec(numerics: Numerics, gate: GateName, trainers: list[dict[str, Any]]) -> dict[str, Any]:
    section: Settings = getattr(numerics, gate)
    spec = section.plain()
    if gate in ("attention", "delta"):
        spec["device"] = numerics.device
    if gate in ("engine", "logprobs") and trainers:
        spec["trainers"] = trainers
    return spec


def _trainers(study: Study) -> list[dict[str, Any]]:
    """What the study's arms train with, as far as it is not one rank in fp32: each shape once, in one stage (which cuts
    between layers, not through them)."""
    from internalize.study import runnable_arms  # the study holds this section

    shapes = [
        arm.parallel.model_dump(mode="json", exclude_defaults=True, include=SHAPE) for arm in runnable_arms(study)
    ]
    return [shape for at, shape in enumerate(shapes) if shape and shape not in shapes[:at]]
