"""A side of a comparison: an arm of a study, a whole run, or an archive.

Invariant: whichever it is, it becomes the same `StudyData` that the tables are made from, and the settings as resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from internalize.errors import UserError
from internalize.files import read_json, read_jsonl
from internalize.report.data import BASE_STEP, Played, Step, StudyData, empty_arms, load
from internalize.report.evidence import METRICS
from internalize.report.results import read_results
from internalize.study_errors import nearest

Row = dict[str, Any]
STUDY, REGISTRY = "state/study.json", "registry.jsonl"
"""Files of an archive that tell it from other folders."""


@dataclass(frozen=True)
class Side:
    """One side."""

    name: str
    data: StudyData
    arms: list[str]
    """The arms that are compared."""
    settings: Mapping[str, Row]
    """Arm -> its settings as resolved."""
    study: Row
    """Settings of the study that are no arm's."""

    @property
    def one_arm(self) -> bool:
        """It was named as an arm, not as a whole run."""
        return len(self.arms) == 1 and (self.name == self.arms[0] or self.name.endswith(f":{self.arms[0]}"))


def read_side(word: str, results: Path, store: Path) -> Side:
    """Reads a side.

    Args:
        word: `ARM` of the study in `results`; `FOLDER` of results (its store lies beside it, as `store`) or of an
            archive; or `FOLDER:ARM`.
        results: the study whose arms go by their bare names.
        store: its store.

    Raises:
        UserError: there is neither such a folder nor such an arm, or the folder is none of the two kinds.
    """
    place, _, arm = word.partition(":")
    folder = Path(place)
    if folder.is_dir():
        side = _of_folder(word, folder)
    elif arm:
        raise UserError("no such folder", where=place, expected="a results folder or an archive")
    else:
        side, arm = _of_results(word, results, store), word
    if not arm:
        return side
    if arm not in side.data.arms:
        known = list(side.data.arms)
        raise UserError(
            "no such arm or folder",
            got=word,
            expected=f"a folder, or one of: {', '.join(known)}",
            fix=nearest(arm, known),
        )
    return Side(side.name, side.data, [arm], side.settings, side.study)


def _of_folder(word: str, folder: Path) -> Side:
    if (folder / STUDY).exists() and (folder / REGISTRY).exists():
        return _of_archive(word, folder)
    if (folder / "receipts" / "report.json").exists():
        return _of_results(word, folder, folder.parent / "store")
    raise UserError(
        "neither results nor an archive",
        where=str(folder),
        expected="receipts/report.json of a results folder, or registry.jsonl of an archive",
    )


def _of_results(word: str, results: Path, store: Path) -> Side:
    found = read_results(results, store)
    data = load(found.spec, found.inputs())
    told = found.archive.spec if found.archive is not None else {"arms": found.spec["arms"], "study": {}}
    return Side(word, data, list(data.arms), _settings(told), told["study"])


def _settings(told: Mapping[str, Any]) -> dict[str, Row]:
    """Per arm what the study file says, its name and what is only told left out."""
    return {
        arm: {key: value for key, value in one.get("settings", one).items() if key not in ("name", "seeds", "note")}
        for arm, one in told["arms"].items()
    }


def _of_archive(word: str, folder: Path) -> Side:
    told = read_json(folder / STUDY)
    arms = empty_arms(told)
    base = Step(BASE_STEP, "base")

    def step_of(run: str, arm: str | None, seed: int | None, number: int) -> Step:
        if arm is None:
            return base
        one = arms[arm]
        return one.runs[int(seed or 0)].steps.setdefault(number, Step(number, one.phases[number]))

    of_run: dict[str, tuple[str | None, int | None]] = {"base": (None, None)}
    for row in read_jsonl(folder / REGISTRY):
        if row["kind"] == "arm" and row["arm"] in arms:
            of_run[row["run"]] = (row["arm"], row["seed"])
            if row.get("stopped_at") is not None:
                run = arms[row["arm"]].runs[row["seed"]]
                run.stopped_at, run.reasons = row["stopped_at"], row["reasons"]
    for part in METRICS:
        path = folder / "metrics" / f"{part}.jsonl"
        for row in read_jsonl(path) if path.exists() else ():
            # a table has every column in every row; what was not measured is null there
            values = {key: value for key, value in row.items() if value is not None and key not in ("run", "arm")}
            setattr(step_of(row["run"], *of_run[row["run"]], row["step"]), part, values)
    for name, of in of_run.items():
        for source, below in (("rollout", "episodes.jsonl"), ("eval", "eval_dumps/episodes.jsonl")):
            file = folder / "runs" / name / below
            for row in read_jsonl(file) if file.exists() else ():
                if row["valid"] and row["source"] == source:
                    played = Played(row["level"], row["level_seed"], bool(row["cleared"]), float(row["returned"]))
                    getattr(step_of(name, *of, row["step"]), f"{source}_episodes").append(played)
    data = StudyData(told["name"], str(told.get("reference", "none")), arms, base, {}, {})
    return Side(word, data, list(arms), _settings(told), told["study"])
