"""What a study may use, and what its jobs are taken to cost until they have been measured.

Invariant: neither `cost` nor `budget` stands in the spec of any job, so a better estimate or a larger budget reruns
nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from internalize.study_model import Count, Settings

Amount = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]


class Budget(Settings):
    """What the study may use in all, counted from its first job on."""

    node_hours: Positive | None = None
    """Node-hours; null: no limit."""
    disk_tb: Positive | None = None
    """Size of the store in TB (10^12 bytes); null: no limit."""
    exceeded: Literal["refuse", "stop"] = "refuse"
    """When the plan costs more: `refuse` to start, or start and `stop` each arm at its last step that fits."""

    def limits(self) -> dict[str, float]:
        """The limits that are set."""
        given = {"node_hours": self.node_hours, "disk_tb": self.disk_tb}
        return {name: value for name, value in given.items() if value is not None}


class Cost(Settings):
    """The cost model: seconds, nodes and bytes of what has not been measured yet.

    The defaults are those of a 2-core laptop, taken from receipts of the bundled study. docs/plan.md has the values for
    the published record's machine, with what each is derived from.
    """

    nodes: Positive = 0.5
    """Nodes that a job of an arm holds; below 1 where jobs share one (two jobs on a 2-core laptop: 0.5). An arm's
    `parallel` settings go before this."""
    play_nodes: Positive | None = None
    """Nodes that a harvest, the gate or an eval holds; null: as many as `nodes`."""
    cpu_nodes: Amount = 0.5
    """Nodes that every other job holds; 0 where CPU time is not charged."""
    gpus_per_node: Annotated[int, Field(ge=0)] = 0
    """GPUs of a node."""
    queue_s: Amount = 0.0
    """Seconds that a job waits in the queue; wall time, no node-hours."""
    start_s: Amount = 3.5
    """Seconds from the start of a job to its first step: imports, engines, weights."""
    episode_s: Amount = 0.006
    """Seconds that an episode takes."""
    episodes_at_once: Count = 1
    """Episodes played side by side."""
    optimizer_step_s: Amount = 0.04
    """Seconds of an RL or joint optimizer step."""
    sft_optimizer_step_s: Amount = 0.07
    """Seconds of an SFT optimizer step."""
    measure_s: Amount = 0.3
    """Seconds to load and probe a checkpoint in an eval, its episodes not counted."""
    cpu_job_s: Amount = 5.0
    """Seconds of a job that neither plays nor trains (knowledge, rows, report)."""
    write_gb_per_s: Positive = 0.1
    """GB a second (10^9 bytes) to which checkpoints are written."""
    parameters: Count | None = None
    """Parameters of the model; null: counted from the base."""
    bytes_per_parameter: Positive | None = None
    """Bytes a parameter in a checkpoint with optimizer state; null: 14 for a base from the hub (bf16 weights 2, float32
    master 4, two float32 moments 8), 12 for a float32 base (weights 4, two moments 8)."""
    step_mb: Amount = 0.2
    """MB of a step besides its checkpoint: episodes, calls, training batches."""
    step_files: Count = 10
    """Files of a step besides its checkpoint."""
