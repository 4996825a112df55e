"""How an arm's training is spread over processes: the study key `parallel`.

Invariant: at its default nothing of it stands in a spec, so that studies without the key keep what they have; of the
rest, a step's spec holds exactly what its bits depend on. Which processes run it (`runtime`, `placement`, `retries`)
and recomputation change no bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from internalize.study_model import Count, Settings, Sparse, partial

DECISIVE = (
    "tensor",
    "pipeline",
    "data",
    "micro_batch_tokens",
    "sequence_parallel",
    "distributed_optimizer",
    "precision",
    "engines",
)
"""Keys that the bits of a result depend on: they decide in which order floats are added."""


class Parallel(Settings):
    """Sizes and runtime of an arm's training. Ranks: tensor x pipeline x data."""

    tensor: Count = 1
    """Ranks that share every layer."""
    pipeline: Count = 1
    """Stages of consecutive layers."""
    data: Count = 1
    """Replicas, each computing its share of every batch."""
    micro_batch_tokens: Count = 8192
    """Packed tokens of a forward pass; bounds activation memory."""
    recompute: Literal["none", "full"] = "none"
    """`full`: activations are computed anew in the backward pass."""
    sequence_parallel: bool = False
    """Norms split along the sequence; needs CUDA and Transformer Engine."""
    distributed_optimizer: bool = False
    """Adam moments split over replicas; needs CUDA."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of weights and activations; with `bf16` the optimizer keeps master weights and moments in fp32."""
    runtime: Literal["inline", "torchrun", "ray"] = "inline"
    """`inline`: in the process of the segment; `torchrun`: ranks on this machine (or on all of a Slurm job);
    `ray`: ranks and engines over the nodes of an allocation."""
    engines: Count | None = None
    """Engines that play, `ray` only; omitted: one a rank."""
    placement: Literal["split", "colocated"] = "split"
    """`split`: an engine has a device of its own; `colocated`: it takes turns with a rank, each offloading for the
    other."""
    retries: Annotated[int, Field(ge=0)] = 2
    """How often a step is tried again after a rank or an engine died."""

    @property
    def ranks(self) -> int:
        """Training processes."""
        return self.tensor * self.pipeline * self.data

    @property
    def devices(self) -> int:
        """GPUs: one a rank; with engines of their own beside them as many more, or no more than there are engines where
        both take turns."""
        engines = self.engine_count or 0
        return self.ranks + engines if self.placement == "split" else max(self.ranks, engines)

    @property
    def engine_count(self) -> int | None:
        """Engine processes; None: the engine is in the segment's process."""
        return (self.engines or self.ranks) if self.runtime == "ray" else None

    def plain(self) -> dict[str, Any]:
        """As JSON values; a key that came later than the first studies only where it is not the default."""
        return super().plain() if self.precision != "fp32" else self.model_dump(mode="json", exclude={"precision"})

    def decides(self) -> dict[str, Any]:
        """What a step's bits depend on, as far as it differs from one rank and one engine."""
        settings = self.model_dump(mode="json", exclude_defaults=True, include=set(DECISIVE) - {"engines"})
        # one engine computes the same bits wherever it runs
        return settings | ({"engines": self.engine_count} if (self.engine_count or 1) > 1 else {})


if TYPE_CHECKING:

    class ParallelOverrides(Sparse): ...
else:
    ParallelOverrides = partial(Parallel, "ParallelOverrides")


def complaints(
    parallel: Parallel, *, episodes: int | None, batch_episodes: int | None, batch_turns: int | None
) -> Iterator[tuple[str, str, str]]:
    """What is impossible: (what, key below `parallel`, fix).

    Args:
        episodes, batch_episodes: of a rollout and of an RL batch; None where the arm plays none.
        batch_turns: turns of an SFT batch; None where the arm has none.
    """
    if parallel.runtime == "inline" and parallel.ranks > 1:
        what = f"{parallel.ranks} ranks need processes of their own"
        yield what, "runtime", "set `parallel.runtime` to torchrun (one machine) or ray"
    if parallel.engines is not None and parallel.runtime != "ray":
        yield "engines are placed by ray only", "engines", "set `parallel.runtime: ray`, or drop `engines`"
    if parallel.sequence_parallel and parallel.tensor == 1:
        what = "sequence parallelism splits inside a tensor-parallel group"
        yield what, "sequence_parallel", "raise `parallel.tensor` above 1, or drop it"
    if batch_episodes is not None and batch_episodes % parallel.data:
        what = f"{parallel.data} replicas do not divide the {batch_episodes} episodes of an RL batch"
        yield what, "data", f"choose a divisor of {batch_episodes}"
    if batch_turns is not None and batch_turns < parallel.data:
        what = f"{parallel.data} replicas for an SFT batch of {batch_turns} turns"
        yield what, "data", f"at most {batch_turns}, or raise `sft.batch_turns`"
    if episodes is not None and (parallel.engine_count or 1) > episodes:
        what = f"{parallel.engine_count} engines for a rollout of {episodes} episodes"
        yield what, "engines", f"at most {episodes}"


def model_complaints(parallel: Parallel, sizes: Mapping[str, int]) -> Iterator[tuple[str, str, str]]:
    """Sizes of the model (keys of its config.json) that the shape does not divide: (what, key, fix)."""
    cuts = [
        ("num_hidden_layers", "layers", "pipeline"),
        ("num_attention_heads", "attention heads", "tensor"),
        ("num_key_value_heads", "key/value heads", "tensor"),
        ("intermediate_size", "MLP columns", "tensor"),
        ("vocab_size", "words of the vocabulary", "tensor"),
    ]
    for name, told, key in cuts:
        size, count = getattr(parallel, key), sizes.get(name)
        if count is not None and count % size:
            divisors = [n for n in range(1, count + 1) if count % n == 0][:8]
            what = f"`{key}: {size}` does not divide the model's {count} {told}"
            yield what, key, f"choose one of {', '.join(map(str, divisors))}"
