"""The purse of a running job: what the study has used so far, and whether its next step still fits the budget.

Invariant: a stop for the budget leaves nothing in the store and no receipt. No key, spec or parent of any step knows of
budgets, so an arm that was stopped goes on bit for bit, at the step behind its last committed one, once the budget is
raised.

What a process uses is kept in `store/spent/<study>/`, one small file a process, updated every minute: time of failed
and killed jobs counts too. Before a step its price is set aside in that file, so that jobs side by side see each other.
An arm that must stop leaves `results/budget/<arm>-seed<seed>.json`; while that mark is in force the workflow plans the
arm up to its last committed step, so that evals and report of what is there can be made.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from internalize.costs.model import HOUR, TB, CostModel
from internalize.errors import UserError
from internalize.files import canonical_json, digest, read_json, write_json
from internalize.receipts import Receipt
from internalize.store import Store

ENVIRONMENT = "INTERNALIZE_ACCOUNT"
"""Variable in which the workflow tells its jobs the terms, as JSON."""
SPENT = "spent"
NOT_ENTRIES = frozenset({SPENT, "leases", "scratch", "running", "log"})
MARKS = Path("results/budget")
AFTER_THE_ARMS = frozenset({"evals", "report", "convert", "archive"})
"""Stages that money is kept back for, and that are not stopped: without them the committed steps say nothing."""
BEAT = 60.0
SILENT = 5 * BEAT
"""Seconds after which a process that no longer writes is taken for dead; what it had set aside is free again."""


class BudgetSpent(UserError):
    """The next step does not fit what is left of the budget."""

    title = "stopped: budget"


@dataclass(frozen=True)
class Terms:
    """What the workflow tells every job."""

    study: str
    budget: dict[str, float] = field(default_factory=dict)
    """`node_hours` and `disk_tb`, as far as the study limits them."""
    model: dict[str, Any] | None = None
    """The cost model (`costs.model.CostModel.plain`); needed only under a budget."""
    nodes: dict[str, float] = field(default_factory=dict)
    """Nodes that a job holds: by stage, and by `segment <arm>`."""
    reserve: float = 0.0
    """Node-hours kept back for the stages behind the arms."""

    def export(self) -> None:
        """Sets the variable for the jobs of this process."""
        os.environ[ENVIRONMENT] = canonical_json(asdict(self))

    @classmethod
    def of_environment(cls) -> Terms | None:
        """The terms of the workflow that started this process; None outside a workflow."""
        text = os.environ.get(ENVIRONMENT)
        return cls(**json.loads(text)) if text else None


class Purse:
    """Outside a workflow, and in tests: nothing is counted, every step is paid for."""

    def before_step(self, spec: Mapping[str, Any], previous: Receipt | None) -> None:
        """Sets the price of a step aside.

        Raises:
            BudgetSpent: it does not fit.
        """

    def after_step(self) -> None:
        """The step is committed."""


class Account(Purse):
    """One process's part of what the study uses.

    Args:
        terms: what the workflow said.
        store: where the ledger lies.
        stage: stage of the job.
        name: its name; `ARM/seedN` for a segment.
    """

    def __init__(self, terms: Terms, store: Store, stage: str, name: str) -> None:
        self.terms, self.store, self.stage, self.name = terms, store, stage, name
        job = f"segment {name.split('/')[0]}" if stage == "segment" else stage
        self.nodes = terms.nodes[job]
        self.folder = store.root / SPENT / terms.study
        self.path = self.folder / f"{time.time_ns()}-{os.getpid()}.json"
        self.model = CostModel(**terms.model) if terms.model else None
        self._start = time.monotonic()
        self._aside, self._aside_bytes, self._steps = 0.0, 0, 0
        self._lock = threading.Lock()
        self._sizes: dict[tuple[str, int], int] = {}

    def before_step(self, spec: Mapping[str, Any], previous: Receipt | None) -> None:
        """See `Purse`; under the ledger's lock, so that two jobs cannot both take the last of it."""
        if not self.terms.budget or self.model is None:
            return
        seconds, size = self._price(spec, previous)
        with self._ledger():
            spent, aside_bytes = used(self.store, self.terms, besides=self.path)
            spent_now = spent + self.node_hours()
            hours = spent_now + seconds * self.nodes / HOUR
            limit = self.terms.budget.get("node_hours")
            if limit is not None and hours > limit:
                raise self._stop("node_hours", previous, f"{hours:.3f} node-hours with this step", f"{limit:g}")
            disk = self.terms.budget.get("disk_tb")
            if disk is not None:
                needed = (stored_bytes(self.store, self._sizes) + aside_bytes + size) / TB
                if needed > disk:
                    raise self._stop("disk_tb", previous, f"{needed:.6g} TB with this step", f"{disk:g}")
            self._aside, self._aside_bytes = seconds * self.nodes / HOUR, size
            self.write()

    def after_step(self) -> None:
        """See `Purse`; a mark of an earlier stop is void now."""
        self._aside, self._aside_bytes = 0.0, 0
        self._steps += 1
        mark_path(*self._run()).unlink(missing_ok=True)

    def node_hours(self) -> float:
        """What this process has used since it was started."""
        return (time.monotonic() - self._start) * self.nodes / HOUR

    def write(self, ended: bool = False) -> None:
        """Writes this process's file."""
        with self._lock:
            write_json(
                self.path,
                {
                    "stage": self.stage,
                    "name": self.name,
                    "nodes": self.nodes,
                    "node_hours": self.node_hours(),
                    "aside": 0.0 if ended else self._aside,
                    "aside_bytes": 0 if ended else self._aside_bytes,
                    "host": platform.node(),
                    "pid": os.getpid(),
                    "ended": ended,
                },
            )

    def _price(self, spec: Mapping[str, Any], previous: Receipt | None) -> tuple[float, int]:
        """Seconds and bytes of the step: as the one before when that was of the same kind, else by the model."""
        assert self.model is not None
        seconds, size = self.model.step_seconds(spec), self.model.step_bytes()
        if previous is not None and previous.status == "done":
            run = self.store.run_info(previous)
            if previous.spec.get("phase") == spec["phase"] and "startup" not in run.get("cpu_parts_s", {"startup": 0}):
                seconds = float(run["wall_s"])
            size = max(previous.payload_bytes(), 1)
        start = float(self.model.cost["start_s"]) if self._steps == 0 else 0.0
        return seconds + start, size

    def _run(self) -> tuple[str, int]:
        arm, _, seed = self.name.partition("/seed")
        return arm, int(seed or 0)

    def _stop(self, limit: str, previous: Receipt | None, got: str, expected: str) -> BudgetSpent:
        arm, seed = self._run()
        step = int(previous.spec["step"]) if previous is not None else -1
        mark = {
            "status": BudgetSpent.title,
            "step": step,
            "limit": limit,
            "value": self.terms.budget[limit],
            "state": state_of(previous.spec, previous.code) if previous is not None else None,
        }
        write_json(mark_path(arm, seed), mark)
        done = f"step {step} is its last" if step >= 0 else "it has no step yet"
        return BudgetSpent(
            f"arm {arm}, seed {seed}: {done}, the next does not fit `budget.{limit}`",
            where=str(self.folder),
            expected=f"at most {expected}",
            got=got,
            fix="run the same command again for evals and report of what is there, or raise the budget to go on",
        )

    @contextlib.contextmanager
    def _ledger(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


@contextlib.contextmanager
def spending(store: Store, stage: str, name: str) -> Iterator[Purse]:
    """Counts the block as a job of the study that the workflow runs."""
    terms = Terms.of_environment()
    if terms is None:
        yield Purse()
        return
    account = Account(terms, store, stage, name)
    account.write()
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            account.write()

    threading.Thread(target=beat, daemon=True, name="spending").start()
    try:
        yield account
    finally:
        ended.set()
        account.write(ended=True)


def used(store: Store, terms: Terms, besides: Path | None = None) -> tuple[float, int]:
    """Node-hours used or set aside, the reserve for the last stages included, and bytes set aside."""
    arms = last = 0.0
    size = 0
    for path in sorted((store.root / SPENT / terms.study).glob("*.json")):
        if path == besides:
            continue
        row = read_json(path)
        hours = float(row["node_hours"])
        if not row["ended"] and _lives(row, path):
            hours += float(row["aside"])
            size += int(row["aside_bytes"])
        if row["stage"] in AFTER_THE_ARMS:
            last += hours
        else:
            arms += hours
    return arms + max(last, terms.reserve), size


def spent_node_hours(store: Store, study: str) -> float:
    """Node-hours that the study has used so far, failed and killed jobs included."""
    return used(store, Terms(study))[0]


def stored_bytes(store: Store, known: dict[tuple[str, int], int] | None = None) -> int:
    """Bytes of all payloads in the store, by their sizes on disk; `known` remembers entries between calls."""
    known = {} if known is None else known
    total = 0
    for stage in _folders(store.root):
        if stage.name in NOT_ENTRIES:
            continue
        for entry in _folders(Path(stage)):
            key = (entry.path, entry.stat().st_mtime_ns)
            if key not in known:
                known[key] = _size(Path(entry))
            total += known[key]
    return total


def mark_path(arm: str, seed: int) -> Path:
    """Where an arm that was stopped for the budget says so."""
    return MARKS / f"{arm}-seed{seed}.json"


def read_mark(arm: str, seed: int) -> dict[str, Any] | None:
    """The mark of a stopped arm, if there is one."""
    path = mark_path(arm, seed)
    return dict(read_json(path)) if path.exists() else None


def in_force(mark: Mapping[str, Any], budget: Mapping[str, float]) -> bool:
    """Does the budget of now still forbid what the mark says was too much?"""
    limit = budget.get(mark["limit"])
    return limit is not None and limit <= mark["value"]


def state_of(spec: Mapping[str, Any], code: str) -> str:
    """What identifies the last committed step of a stopped arm: its settings and code."""
    return digest({"spec": dict(spec), "code": code})


def _folders(path: Path) -> list[os.DirEntry[str]]:
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return sorted((entry for entry in entries if entry.is_dir()), key=lambda entry: entry.name)


def _size(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(root) / name).stat().st_size
    return total


def _lives(row: Mapping[str, Any], path: Path) -> bool:
    """Does the process still run, as far as can be seen from here?"""
    if row["host"] == platform.node():
        return Path(f"/proc/{row['pid']}").exists() or not Path("/proc").exists()
    try:
        return time.time() - path.stat().st_mtime < SILENT
    except OSError:
        return False
