"""The worker of a segment: one trainer, one engine, one game; it plays, trains, judges and saves a step.

Invariant: the engine plays step i with exactly the weights that the trainer held after step i-1, and every draw is
seeded by (arm seed, step, episode, call), so a worker that resumes repeats a lost step bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from internalize.arms.batches import own_episodes, rl_batches, softlabel_batches
from internalize.arms.settings import StepSettings
from internalize.arms.updates import summary, take_steps
from internalize.checkpoints import layout
from internalize.diagnostics.watchdog import beat_on_calls
from internalize.engine.local import LocalEngine
from internalize.engine.protocol import SamplingParams
from internalize.evals.guard import Guard, GuardVerdict
from internalize.evals.play_metrics import play_metrics
from internalize.files import write_json, write_jsonl
from internalize.games import make_game
from internalize.games.shaping import ShapingWeights, write_shaping
from internalize.harness.choose import make_harness
from internalize.harness.counted import invalid_reasons, need_one
from internalize.harness.episode import Episode, write_episodes
from internalize.language.sayings import load_sayings
from internalize.rollout.actor import load_engine
from internalize.rollout.advantages import Advantages, episode_advantages
from internalize.rollout.dump import save_dump
from internalize.rollout.metrics import rollout_metrics
from internalize.rollout.plans import rollout_plans
from internalize.rollout.samples import samples
from internalize.rows.batches import read_rows, sft_batches
from internalize.runtime.runtimes import open_runtime
from internalize.seeds import rng
from internalize.store import WORK, Input, Stopwatch
from internalize.study_parallel import Parallel
from internalize.train.batch import TrainSequence

MAX_CONTEXT = 512
REMEMBERED = (
    "calls_per_episode",
    "calls_uncleared",
    "think_tokens",
    "tool_call_ending_rate",
    "text_end_share",
    "clear_rate",
    "repetition_share",
    "noop_share",
    "look_share",
    "loop_share",
    "zero_variance_share",
    "loss",
    "grad_norm",
    "logprob_abs_diff",
)
"""Readings that the collapse guard needs of each step."""
Batches = list[list[TrainSequence]]


class Worker:
    """Runs steps of one arm and seed in order.

    Args:
        segment: the segment's spec (`arms.settings`).
        inputs: `base`, `knowledge`, `gate` and `rows.<name>`, opened.
        previous: the step before, opened; None starts from the base.
        scratch: folder for what its processes exchange; needed where the segment has any.

    Raises:
        WorkerLost: a process of it did not come up.
    """

    def __init__(
        self,
        segment: Mapping[str, Any],
        inputs: Mapping[str, Input],
        previous: Input | None,
        scratch: Path = Path("store/scratch"),
    ) -> None:
        self.seed = int(segment["seed"])
        self.game = make_game(**segment["game"])
        base = inputs["base"].payload
        slots = int(segment["rollout"]["episodes"])  # what is played at once; caches cost memory and start-up
        runs = Parallel(**segment.get("parallel", {}).get("runs", {}))
        self.max_context = int(segment["rollout"].get("max_context", MAX_CONTEXT))
        self.runtime, self.template = open_runtime(
            runs,
            base,
            self.game,
            seed=self.seed,
            slots=slots,
            max_len=self.max_context,
            scratch=scratch,
            engine=segment.get("engine"),
        )
        self.engine, self.trainer = self.runtime.engine, self.runtime.trainer
        try:
            self._prepare(segment, inputs, previous, base)
        except BaseException:
            self.close()
            raise

    def _prepare(
        self, segment: Mapping[str, Any], inputs: Mapping[str, Input], previous: Input | None, base: Path
    ) -> None:
        self.base = base
        self.facts: list[str] = inputs["knowledge"].facts["prompt_facts"]
        known = inputs["knowledge"]
        self.sayings = load_sayings(known.payload, known.facts)
        held_out = set(known.facts["held_out_facts"])
        self.taught = [self.sayings.say(fact) for fact in self.facts if fact not in held_out]
        self.rows = {
            name.removeprefix("rows."): read_rows(opened.payload)
            for name, opened in inputs.items()
            if name.startswith("rows.")
        }
        self.guard = Guard(segment["guard"], inputs["gate"].facts["reference"])
        rollout = segment["rollout"]
        self.sampling = SamplingParams(
            temperature=float(rollout["temperature"]),
            max_new_tokens=int(rollout["max_new_tokens"]),
            stop_ids=(self.template.stop_id,),
        )
        self.shaping = ShapingWeights()
        self.harness = make_harness(
            rollout.get("harness"),
            engine=self.engine,
            game=self.game,
            template=self.template,
            sampling=self.sampling,
            shaping=self.shaping,
            max_context=self.max_context,
            together="engine" in segment,
        )
        self.watch = Stopwatch()
        beat_on_calls(self.engine, "generate", lambda: self.watch.beat("an engine call"))
        if previous is None:
            self.runtime.load_base(base)
        else:
            step = int(previous.receipt.spec["step"])
            self.trainer.load(layout.iteration_folder(previous.payload, step))

    def close(self) -> None:
        """Frees the trainer's process group, and ends the processes of a parallel one."""
        self.runtime.close()

    @cached_property
    def teacher(self) -> LocalEngine:
        """The base's weights; only context distillation asks for them."""
        return load_engine(self.base, 1, self.max_context, self.game)[0]

    def run(self, settings: StepSettings, folder: Path, before: Mapping[str, Any], watch: Stopwatch) -> dict[str, Any]:
        """Plays, trains, judges and writes one step into `folder`; returns the facts of its receipt.

        Args:
            settings: the step.
            folder: empty payload folder.
            before: facts of the step before (the guard's history); empty at the start of an arm.
            watch: takes the CPU seconds of play, train and save.
        """
        step, self.watch = settings.step, watch
        if settings.reset:
            self.trainer.reset_optimizer()
        self.runtime.sync(f"step{step - 1:04d}")
        episodes: list[Episode] = []
        advantages: Advantages | None = None
        with watch.phase("play"):
            if settings.plays:
                episodes = self._play(settings, folder)
                advantages = episode_advantages(episodes)
        played = self._played(episodes, advantages)
        with watch.phase("train"):
            batches = self._batches(settings, episodes, advantages, folder)
            self.runtime.before_training()
            stats, broken = take_steps(
                self.trainer, batches, settings, lambda done: watch.beat(f"optimizer step {done} of {len(batches)}")
            )
        trained = summary(stats, broken)
        history = [*before.get("history", []), _reading(settings, played, trained)]
        verdict = self.guard.check(history)
        with watch.phase("save"):
            self._write(settings, folder, episodes, batches, played, trained, verdict, history)
        watch.add("ranks and engines", self.runtime.cpu_seconds())
        facts: dict[str, Any] = {
            "phase": settings.phase,
            "loss": trained.get("loss"),
            "history": history,
            **{name: played[name] for name in ("return_mean", "clears", "episodes") if name in played},
        }
        if invalid := invalid_reasons(episodes):
            facts["invalid"] = invalid
        if verdict.stop:
            facts |= {"stopped_at": step, "reasons": verdict.reasons, "last_good_step": _last_good(history)}
        return facts

    def _play(self, settings: StepSettings, folder: Path) -> list[Episode]:
        rollout = settings.spec["rollout"]
        index = settings.spec["rollout_index"]
        plans = rollout_plans(index, self.seed, rollout["episodes"], rollout["group_size"], rollout["levels"])
        episodes = self.harness.play(plans, seed_key=("rollout", self.seed, index), record=folder / WORK)
        need_one(episodes, f"rollout of step {settings.step}, {self.harness.name}")
        return episodes

    def _played(self, episodes: list[Episode], advantages: Advantages | None) -> dict[str, Any]:
        if advantages is None:
            return {}
        metrics: dict[str, Any] = {
            **play_metrics(episodes, self.game, self.facts, self.sayings),
            **rollout_metrics(episodes, advantages),
        }
        metrics["zero_variance_share"] = metrics["silent_group_share"]
        return metrics

    def _batches(
        self, settings: StepSettings, episodes: list[Episode], advantages: Advantages | None, folder: Path
    ) -> Batches:
        """The optimizer batches of a step, in order."""
        spec = settings.spec
        batches: Batches = []
        if advantages is not None:
            draw = rng("rl-order", self.seed, settings.step)
            batches = rl_batches(
                samples(episodes, advantages), [e.plan.id for e in episodes], spec["rl"]["optimizer_steps"], draw
            )
        if settings.reads_rows:
            sft = spec["sft"]
            count = len(batches) or sft["optimizer_steps"]
            turns = max(1, round(sft["batch_turns"] * spec["fraction"])) if batches else sft["batch_turns"]
            extra = self._sft(settings, count, turns, folder)
            batches = [[*a, *b] for a, b in zip(batches, extra, strict=True)] if batches else extra
        return batches

    def _sft(self, settings: StepSettings, count: int, turns: int, folder: Path) -> Batches:
        """`count` batches of about `turns` turns, each row set giving its share."""
        spec, shares = settings.spec, settings.spec["rows"]
        total = sum(shares.values())
        mixed: Batches = [[] for _ in range(count)]
        for name in sorted(shares):
            part = max(1, round(turns * shares[name] / total))
            draw = rng("sft", self.seed, settings.step, name)
            rows = self.rows[name]
            if rows.online is not None:
                levels, number = spec["rollout"]["levels"], rows.online["episodes"]
                own = own_episodes(self.harness, number, levels, self.seed, settings.step, folder / WORK)
                made = softlabel_batches(own, self.teacher, self.template, self.taught, count, part, draw)
            else:
                made = sft_batches(rows.rows, count, part, draw, settings.cite_weight)
            mixed = [[*a, *b] for a, b in zip(mixed, made, strict=True)]
        return mixed

    def _write(
        self,
        settings: StepSettings,
        folder: Path,
        episodes: list[Episode],
        batches: Batches,
        played: dict[str, Any],
        trained: dict[str, Any],
        verdict: GuardVerdict,
        history: list[dict[str, Any]],
    ) -> None:
        """Everything the step leaves behind; the store makes the folder appear as a whole."""
        step = settings.step
        label = {"step": step, "phase": settings.phase, "seed": self.seed}
        rows = [
            {**label, "kind": "train", **trained},
            {**label, "kind": "guard", "stop": verdict.stop, **verdict.readings},
        ]
        if episodes:
            write_episodes(folder, episodes)
            rows.insert(0, {**label, "kind": "rollout", **played})
        write_jsonl(folder / "metrics.jsonl", rows)
        write_shaping(folder / "shaping.json", self.shaping)
        save_dump(folder / "rollout" / f"{step}.pt", step, batches, {"phase": settings.phase, "seed": self.seed})
        if verdict.stop:
            record = {**verdict.record(), "step": step, "last_good_step": _last_good(history)}
            write_json(folder / "collapse_guard.json", record)
            return
        self.trainer.save(layout.iteration_folder(folder, step), iteration=step)
        layout.write_cursor(
            folder,
            step,
            {"step": step, "seed": self.seed, "next_step": step + 1, "optimizer_steps": self.trainer.steps},
        )
        layout.write_tracker(folder, step)


def _reading(settings: StepSettings, played: Mapping[str, Any], trained: Mapping[str, Any]) -> dict[str, Any]:
    """What the guard remembers of a step."""
    both = {**played, **trained}
    return {"step": settings.step, **{key: both[key] for key in REMEMBERED if key in both}}


def _last_good(history: list[dict[str, Any]]) -> int:
    """The step whose checkpoint played the last rollout that the guard let pass; -1 is the base."""
    rollouts = [row["step"] for row in history[:-1] if "calls_per_episode" in row]
    return max(rollouts) - 1 if rollouts else -1
