"""Arms of the study file: what is trained, on which rows, in which order.

Invariant: an `Arm` is complete (every default filled in) and possible (its schedule fits its steps and rows).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from internalize.study_harness import HarnessSettings
from internalize.study_model import Count, Name, Rate, Seed, Settings, Sparse, Status, partial
from internalize.study_parallel import Parallel, ParallelOverrides


class NoSft(Settings):
    """Pure RL: no SFT step at all."""

    type: Literal["none"]


class SftFirst(Settings):
    """SFT steps first, then RL."""

    type: Literal["sft_first"]
    steps: Count
    """SFT steps before the first RL step."""


class SftInterleaved(Settings):
    """One SFT step before each `every` RL steps, again and again."""

    type: Literal["sft_interleaved"]
    every: Annotated[Count, WithJsonSchema({"type": "integer", "minimum": 2})]
    """RL steps after each SFT step; at least 2 (to alternate strictly, `sft_freq` with `sft: 1, of: 2`)."""


class SftFreq(Settings):
    """After a warm-up, the first `sft` of every `of` steps are SFT, the others RL."""

    type: Literal["sft_freq"]
    sft: Count
    """SFT steps in each block."""
    of: Count
    """Steps in a block."""
    warmup: Annotated[int, Field(ge=0)] = 0
    """SFT steps before the first block."""


class SftJoint(Settings):
    """Every step plays a rollout and trains on it and on SFT rows together, each with its own normaliser."""

    type: Literal["sft_joint"]
    fraction: float
    """SFT turns of a joint step as a share of those of a pure SFT step; above 0 and below 1."""
    warmup: Annotated[int, Field(ge=0)] = 0
    """SFT steps before the first joint step."""


Schedule = Annotated[NoSft | SftFirst | SftInterleaved | SftFreq | SftJoint, Field(discriminator="type")]
"""Any schedule."""


class ConstantNormaliser(Settings):
    """The RL loss is divided by episodes x `tokens_per_episode`, whatever the episodes' length (Dr.GRPO)."""

    type: Literal["constant"]
    tokens_per_episode: Annotated[float, Field(gt=0)]
    """Tokens that an episode counts for."""


class TokenNormaliser(Settings):
    """The RL loss is divided by the number of trained tokens in the optimizer batch."""

    type: Literal["tokens"]


Normaliser = Annotated[ConstantNormaliser | TokenNormaliser, Field(discriminator="type")]
"""What a summed RL loss is divided by."""


class RlSettings(Settings):
    """Dr.GRPO on the episodes of one rollout."""

    optimizer_steps: Count = 8
    """Optimizer steps a rollout; the batch is episodes / optimizer_steps."""
    lr: Annotated[float, Field(gt=0)] = 1e-4
    """Learning rate."""
    clip_low: Rate = 0.2
    """Lower clip: probability ratios below 1 - clip_low give no gradient when the advantage is negative."""
    clip_high: Annotated[float, Field(gt=0)] = 0.28
    """Upper clip: ratios above 1 + clip_high give no gradient when the advantage is positive."""
    normaliser: Normaliser = ConstantNormaliser(type="constant", tokens_per_episode=54.0)
    """What the summed RL loss is divided by."""
    frozen_adam: bool = False
    """True: Adam moments survive the change from SFT to RL (the record's first attempt) uncleared."""


class SftSettings(Settings):
    """Weighted cross-entropy on rows."""

    optimizer_steps: Count = 1
    """Optimizer steps in an SFT step."""
    batch_turns: Count = 32
    """Turns (questions for rows without play) in an optimizer batch."""
    lr: Annotated[float, Field(gt=0)] = 5e-4
    """Learning rate."""


if TYPE_CHECKING:

    class RlOverrides(Sparse): ...

    class SftOverrides(Sparse): ...
else:
    RlOverrides = partial(RlSettings, "RlOverrides")
    SftOverrides = partial(SftSettings, "SftOverrides")


def _shares(value: Any) -> Any:
    """`recite`, `[recite, replay]` and `{recite: 0.7, replay: 0.3}` all as name -> share."""
    if value is None or isinstance(value, Mapping):
        return value
    if isinstance(value, str):
        return {value: 1.0}
    if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
        if len(set(value)) < len(value):
            raise ValueError("a row set is named twice")
        return dict.fromkeys(value, 1.0)
    raise ValueError("must be a row set's name, a list of names, or a mapping of names to shares")


def _weights(value: Any) -> Any:
    """A number, or a list of numbers; both must be positive."""
    numbers = value if isinstance(value, list) and value else [value]
    if any(isinstance(n, bool) or not isinstance(n, int | float) or not n > 0 for n in numbers):
        raise ValueError("must be a positive number, or a list with one positive number an SFT step")
    return value


ArmRows = Annotated[
    dict[Name, Annotated[float, Field(gt=0)]] | None,
    BeforeValidator(_shares),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}},
                {"type": "null"},
            ]
        }
    ),
]
_NUMBER = {"type": "number", "exclusiveMinimum": 0}
CiteWeight = Annotated[
    Any,
    BeforeValidator(_weights),
    WithJsonSchema({"anyOf": [_NUMBER, {"type": "array", "items": _NUMBER, "minItems": 1}]}),
]


def _distinct(seeds: list[int]) -> list[int]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("a seed is given twice")
    return seeds


Seeds = Annotated[list[Seed], Field(min_length=1), AfterValidator(_distinct)]


class ArmDefaults(Sparse):
    """What arms have unless they say otherwise."""

    rows: ArmRows = None
    """Row sets that SFT trains on: a name, a list of names, or names with shares."""
    schedule: Schedule | None = None
    """Order of SFT and RL steps."""
    steps: Count | None = None
    """Steps of the arm, SFT and RL together."""
    seeds: Seeds | None = None
    """Seeds that the arm is run with; the study's unless given."""
    cite_weight: CiteWeight = 1.0
    """Factor on inserted knowledge tokens (`armc` rows): one number, or one an SFT step."""
    sft: SftOverrides = Field(default_factory=SftOverrides)
    """Overrides of the study's `sft`."""
    rl: RlOverrides = Field(default_factory=RlOverrides)
    """Overrides of the study's `rl`."""
    parallel: ParallelOverrides = Field(default_factory=ParallelOverrides)
    """How training is spread over processes; one process unless given."""
    harness: HarnessSettings = None
    """What plays the rollouts; the study's `rollout.harness` unless given."""
    status: Status = "valid"
    """Registry status; which statuses are run stands in the study's `run`."""


class ArmEntry(ArmDefaults):
    """One arm as the study file writes it: only what differs from the defaults."""

    note: str = ""
    """One line for the report: what the arm is for."""
    reason: str = ""
    """Why it has its status."""
    continues: Name | None = None
    """Arm whose last step is this one's beginning; steps are counted on from there."""


class Arm(Settings):
    """One arm, complete."""

    name: Name
    """Its key in the study file."""
    rows: dict[str, float]
    """Row set -> share; empty when nothing is trained by SFT."""
    schedule: Schedule
    """Order of SFT and RL steps."""
    steps: Count
    """Steps of the arm's own."""
    seeds: Seeds
    """Seeds it is run with."""
    cite_weight: float | list[float]
    """Factor on inserted knowledge tokens."""
    sft: SftSettings
    """SFT settings."""
    rl: RlSettings
    """RL settings."""
    parallel: Parallel = Parallel()
    """Processes that train."""
    harness: HarnessSettings = None
    """What plays the rollouts; None is in process."""
    status: Status
    """Registry status."""
    note: str
    """What the arm is for."""
    reason: str = ""
    """Why it has its status."""
    continues: Name | None = None
    """Arm whose last step is this one's beginning."""
    inherited: list[Literal["sft", "rl", "joint"]] = []
    """Phases of the steps before its own: those of the arm that it continues."""
