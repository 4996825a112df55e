"""What the Snakefile asks: the targets, and the inputs, the spec and the code of every job.

Invariant: equal study, equal code and equal receipts give an equal plan, wherever the repository lies; making
one writes nothing but the fingerprint cache.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from internalize import runlog, specs, specs_archive
from internalize.base.prebuilt import prebuilt_digest
from internalize.cluster.placement import Placing
from internalize.cluster.site import Site
from internalize.configfile import found, read_config
from internalize.errors import UserError
from internalize.files import canonical_json, read_json
from internalize.fingerprint import Fingerprints
from internalize.inputs import RECEIPTS, segment_path
from internalize.plan_segments import Cut, Segments
from internalize.report.assets import static_digest
from internalize.schedule import own_steps, phases
from internalize.stages import STAGES
from internalize.study import Study, load_study, runnable_arms
from internalize.study_arms import Arm
from internalize.study_base import HubBase
from internalize.study_checkpoints import Convert
from internalize.study_checks import check_parallel
from internalize.study_games import ArcGame
from internalize.study_numerics import chosen_gates, numerics_specs
from internalize.study_rows import harvest_of, parent_of
from internalize.study_yaml import Source

MODULES = {
    **STAGES,
    "segment": "internalize.arms.segment",
    "graphs": "internalize.report.graphs",
    "archive": "internalize.archive.job",
    "page": "internalize.report.page",
}
AGENT_MODULES = ("internalize.harness.cli_episode",)
PICTURES = ("results/rulegraph.svg", "results/dag.svg")
ARCHIVE_SUMS = "results/archive/MANIFEST.sha256"
PAGE = "results/report/index.html"
CACHE = Path(".snakemake/internalize-fingerprints.json")

Inputs = dict[str, str | list[str]]


class Plan:
    """A study as jobs. Receipt paths are relative to the working directory, where `results` and `store` lie.

    Args:
        study: the study, cut down to the arms that are asked for.
        repository: folder in which a prebuilt base is looked up when the working directory lacks it.
        steps_per_job: steps that one job of an arm runs; None: all of them.
        words: the `--config` words that the plan was made from, for calls of Snakemake on the same plan.
        site: the cluster that jobs run on; None: this machine.

    Raises:
        UserError: the prebuilt base that the study names is missing or damaged, or no arm is left to run.
    """

    def __init__(
        self,
        study: Study,
        repository: Path,
        steps_per_job: int | None = None,
        words: Sequence[str] = (),
        site: Site | None = None,
    ) -> None:
        self.study = study
        self.repository = repository
        self._codes: dict[str, str] = {}
        self.words = list(words)
        self.arms = {arm.name: arm for arm in runnable_arms(study)}
        if not self.arms:
            got = f"only arms with another status than {', '.join(study.run)}"
            raise UserError("no arm to run", where="arms", got=got, fix="name one: --config arms=...")
        self._segments = Segments(study, steps_per_job, lambda: self.code("segment"))
        self.placing = Placing(site, self.arms)
        self._fingerprints = Fingerprints(cache=CACHE)
        shipped = study.base.prebuilt
        self._prebuilt_digest = prebuilt_digest(found(shipped, repository)) if shipped is not None else None
        if shipped is not None and any(arm.parallel.ranks > 1 for arm in self.arms.values()):
            model = read_json(found(shipped, repository) / "config.json")
            for arm in self.arms.values():
                check_parallel(arm, study, Source(Path(study.name), {}), model)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], repository: Path, configfiles: Sequence[str | Path] = ()) -> Plan:
        """The plan for Snakemake's `--config` values.

        Args:
            config: `study` (path of the study file), `arms` (names, blanks between), `set` (overrides such as
                `rl.lr=2e-4`, blanks between), `steps_per_job`, `site` (a mapping, from a profile's site file).
            repository: folder in which a relative path is looked up when the working directory lacks it.
            configfiles: files of `--configfile`; a study file among them is taken as `study`.

        Raises:
            StudyError: the study is wrong.
            UserError: a config key is unknown or its value unusable, or see `Plan`.
        """
        asked = read_config(config, configfiles, repository)
        study = load_study(asked.study, arms=asked.arms, set=asked.overrides)
        return cls(study, repository, asked.steps_per_job, asked.words, Site.from_config(config))

    def names(self) -> dict[str, str]:
        """Wildcard constraints: the arms, row sets and harvests of this study, and numbers."""
        return {
            "arm": _any_of(self.arms),
            "rows": _any_of(self.study.rows),
            "harvest": _any_of(self.study.harvests),
            "seed": "[0-9]+",
            "first": "[0-9]{4}",
            "last": "[0-9]{4}",
            "step": "[0-9]{4}",
        }

    def targets(self) -> list[str]:
        """Every receipt of the study, so that a deleted one comes back, and the pictures of the workflow."""
        listed = flat(self.archive_inputs(None))
        return [f"{RECEIPTS}/archive.json", ARCHIVE_SUMS, PAGE, *PICTURES, *listed, *self.numerics()]

    def log(self, event: str) -> None:
        """Notes in the store's log that the workflow was launched, finished or failed, with the words it was given."""
        runlog.record(
            Path("store"), event, name=self.study.name, config=self.words, **runlog.git_state(self.repository)
        )

    # What determines a job

    def code(self, stage: str) -> str:
        """Fingerprint of the code behind a stage (a key of `MODULES`)."""
        if stage not in self._codes:
            also = AGENT_MODULES if self._played_by_agent(stage) else ()
            self._codes[stage] = self._fingerprints.of(MODULES[stage], also)
        return self._codes[stage]

    def spec(self, job: str) -> Callable[[Any], str]:
        """Snakemake params function of a rule: its spec as canonical JSON."""
        study = self.study
        makers: dict[str, Callable[[Any], specs.Spec]] = {
            "knowledge": lambda w: specs.knowledge(study),
            "fetch_game": lambda w: specs.game(study.game) if isinstance(study.game, ArcGame) else {},
            "base": lambda w: specs.base(study, self._prebuilt_digest),
            "gate": lambda w: specs.gate(study),
            "numerics": lambda w: numerics_specs(study),
            "harvest": lambda w: specs.harvest(study, w.harvest),
            "rows": lambda w: specs.rows(study, w.rows),
            "segment": lambda w: specs.segment(study, self.arms[w.arm], int(w.seed), int(w.first), int(w.last)),
            "evals": lambda w: specs.evals(study, [*self._segments.steps(self.arms[w.arm], int(w.seed))]),
            "evals_base": lambda w: specs.evals(study, [specs.BASE_STEP]),
            "convert": lambda w: (study.convert or Convert()).spec(),
            "report": lambda w: specs.report(study, self._reported()),
            "archive": lambda w: specs_archive.archive(study, self._reported()),
            "page": lambda w: {"static": static_digest()},
            "graphs": lambda w: {"config": self.words, "jobs": self._jobs(), **self._pictured_gates()},
        }
        make = makers[job]
        return lambda wildcards: canonical_json(make(wildcards))

    def resources(self, rule: str) -> dict[str, Any]:
        """Snakemake resources of a rule on the site; none on a machine without one. They rerun nothing."""
        return self.placing.resources(rule)

    # What a job reads

    @property
    def fetches_game(self) -> bool:
        """The game's file is the user's, or fetched on the login node."""
        return isinstance(self.study.game, ArcGame)

    @property
    def fetches_base(self) -> bool:
        """The base comes from the hub, fetched on the login node."""
        return isinstance(self.study.base, HubBase)

    @property
    def base_stage(self) -> str:
        """The stage that the rule `base` runs."""
        return "fetch_base" if self.fetches_base else "base"

    def game_receipt(self) -> list[str]:
        """The receipt of the fetched game; nothing for a bundled one."""
        return [f"{RECEIPTS}/game.json"] if self.fetches_game else []

    def rows_inputs(self, wildcards: Any) -> Inputs:
        """Base (its vocabulary), knowledge, and the harvest or row set that the rows are made from."""
        rows = self.study.rows[wildcards.rows]
        harvest, parent = harvest_of(rows), parent_of(rows)
        return {
            **_shared("base", "knowledge"),
            "harvest": [f"{RECEIPTS}/harvest/{harvest}.json"] if harvest else [],
            "of": [f"{RECEIPTS}/rows/{parent}.json"] if parent else [],
        }

    def segment_inputs(self, wildcards: Any) -> Inputs:
        """Base, knowledge and gate; the rows that the segment reads; the segment before.

        Raises:
            UserError: the arm has no such segment.
        """
        arm, first, last = self.arms[wildcards.arm], int(wildcards.first), int(wildcards.last)
        segments = self.segments(arm)
        inside, part_end = self._segments.part(arm, wildcards.seed, first)
        if last > dict(segments).get(first, part_end):
            raise UserError(
                f"arm `{arm.name}` has no segment of steps {first} to {last}",
                expected=f"one of: {', '.join(f'{start} to {end}' for start, end in segments)}",
                fix="see the arm's `steps`, and --config steps_per_job",
            )
        before = [segment_path(arm.name, wildcards.seed, start, end) for start, end in segments if end == first - 1]
        if arm.continues is not None and first == own_steps(arm).start:
            before = self._segments.paths(self.arms[arm.continues], int(wildcards.seed))[-1:]
        rows = arm.rows if specs.reads_rows(arm, first, last) else []
        return {
            **_shared("base", "knowledge", "gate"),
            "rows": [f"{RECEIPTS}/rows/{name}.json" for name in rows],
            "previous": before or inside,
            "numerics": self.numerics(),
        }

    def numerics(self) -> list[str]:
        """Receipts of the numeric gates that stand in front of the arms; none unless the study asks for gates."""
        return [f"{RECEIPTS}/numerics/{gate}.json" for gate in chosen_gates(self.study.numerics)]

    def evals_inputs(self, wildcards: Any) -> Inputs:
        """Base and knowledge, and the arm's segments in order."""
        segments = self._segments.paths(self.arms[wildcards.arm], int(wildcards.seed))
        return {**_shared("base", "knowledge"), "segments": segments}

    def report_inputs(self, wildcards: Any) -> Inputs:
        """Knowledge, base, gate; the rows in use; every eval and every segment."""
        runs = [(arm, seed) for arm in self.arms.values() for seed in self.seeds_to_run(arm)]
        used = sorted({name for arm in self.arms.values() for name in arm.rows})
        evals = [f"{RECEIPTS}/evals/{arm.name}/seed{seed}.json" for arm, seed in runs]
        return {
            **_shared("knowledge", "base", "gate"),
            "rows": [f"{RECEIPTS}/rows/{name}.json" for name in used],
            "evals": [f"{RECEIPTS}/evals/base.json", *evals],
            "segments": [path for arm, seed in runs for path in self._segments.paths(arm, seed)],
        }

    def archive_inputs(self, wildcards: Any) -> Inputs:
        """What the report reads and the report itself, with the game, the harvests and the row sets that all of that
        was made from, and the model folders."""
        return {
            **self.report_inputs(wildcards),
            **_shared("report"),
            "game": self.game_receipt(),
            "harvest": [f"{RECEIPTS}/harvest/{name}.json" for name in self.harvests()],
            "rows": [f"{RECEIPTS}/rows/{name}.json" for name in self.row_sets()],
            "convert": self.conversions(),
        }

    def row_sets(self) -> list[str]:
        """The row sets that the arms use, each behind the one that it is cut from."""
        ordered: dict[str, None] = {}
        for name in sorted({name for arm in self.arms.values() for name in arm.rows}):
            chain = [name]
            while (parent := parent_of(self.study.rows[chain[0]])) is not None:
                chain.insert(0, parent)
            ordered |= dict.fromkeys(chain)
        return list(ordered)

    def harvests(self) -> list[str]:
        """The harvests that these row sets are made from."""
        used = (harvest_of(self.study.rows[name]) for name in self.row_sets())
        return list(dict.fromkeys(name for name in used if name is not None))

    # Conversions

    def conversions(self) -> list[str]:
        """Receipts of the checkpoints that become model folders; none unless the study has `convert`."""
        return [
            f"{RECEIPTS}/convert/{arm}/seed{seed}/step{step:04d}.json"
            for (arm, seed), steps in self.published().items()
            for step in steps
        ]

    def published(self) -> dict[tuple[str, int], list[int]]:
        """Arm and seed -> its steps that become model folders."""
        return {(arm.name, seed): self._converted(arm, seed) for arm in self.arms.values() for seed in arm.seeds}

    def _converted(self, arm: Arm, seed: int) -> list[int]:
        wanted = self.study.convert
        return wanted.chosen(self._segments.checkpoints(arm, seed), phases(arm)) if wanted is not None else []

    def convert_inputs(self, wildcards: Any) -> Inputs:
        """Base, and the segment that the step belongs to.

        Raises:
            UserError: the arm has no such step, or it is not to be run.
        """
        arm, step = self.arms[wildcards.arm], int(wildcards.step)
        for first, last in self.segments_to_run(arm, int(wildcards.seed)):
            if first <= step <= last:
                return {**_shared("base"), "segment": segment_path(arm.name, wildcards.seed, first, last)}
        own = own_steps(arm)
        raise UserError(f"arm `{arm.name}` has no step {step}", expected=f"{own.start} to {own.stop - 1}")

    # Segments

    def segments(self, arm: Arm) -> list[Cut]:
        """First and last step of each job of an arm."""
        return self._segments.of(arm)

    def segments_to_run(self, arm: Arm, seed: int) -> list[Cut]:
        """The same without what lies behind the collapse guard's stop or the end of the budget."""
        return self._segments.to_run(arm, seed)

    def seeds_to_run(self, arm: Arm) -> list[int]:
        """The arm's seeds, without those that the budget stopped before their first step."""
        return [seed for seed in arm.seeds if self.segments_to_run(arm, seed)]

    def budget_end(self, arm: Arm, seed: int) -> int | None:
        """The last committed step of an arm that ran out of budget (-1: none); None when nothing holds it back now."""
        return self._segments.budget_end(arm, seed)

    def _reported(self) -> list[Arm]:
        """The arms as the report tells them: a stop for the budget stands in the note."""
        told = []
        for arm in self.arms.values():
            seeds = self.seeds_to_run(arm)
            ends = {seed: end for seed in seeds if (end := self.budget_end(arm, seed)) is not None}
            note = "".join(f"; stopped: budget, after step {end} (seed {seed})" for seed, end in ends.items())
            if seeds:
                told.append(arm.model_copy(update={"seeds": seeds, "note": f"{arm.note}{note}".removeprefix("; ")}))
        return told

    def _jobs(self) -> dict[str, Any]:
        """What the pictures show of each arm."""
        return {arm.name: [sorted(arm.rows), arm.seeds, self.segments(arm)] for arm in self.arms.values()}

    def _pictured_gates(self) -> dict[str, Any]:
        gates = chosen_gates(self.study.numerics)
        return {"numerics": gates} if gates else {}

    def _played_by_agent(self, stage: str) -> bool:
        """Does some job of the stage play through an agent CLI?"""
        harnesses = {
            "harvest": [harvest.harness for harvest in self.study.harvests.values()],
            "segment": [arm.harness for arm in self.arms.values()],
            "evals": [self.study.evals.harness],
        }
        return any(harness is not None for harness in harnesses.get(stage, ()))


def prepare_environment(repository: Path) -> None:
    """Lets jobs find `internalize` and the repository, and gives each process one compute thread."""
    tools = str(Path(sys.executable).parent)
    if tools not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([tools, os.environ.get("PATH", "")])
    os.environ["INTERNALIZE_HOME"] = str(repository)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _any_of(names: Iterable[str]) -> str:
    """A pattern for exactly these names; for none, one that nothing matches."""
    return "|".join(names) or "(?!)"


def _shared(*names: str) -> Inputs:
    return {name: f"{RECEIPTS}/{name}.json" for name in names}


def flat(inputs: Inputs) -> list[str]:
    """All receipts of a job's inputs."""
    return [path for paths in inputs.values() for path in ([paths] if isinstance(paths, str) else paths)]
