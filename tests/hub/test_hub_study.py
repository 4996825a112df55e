"""Every stage with a game, a model and an engine that are not the bundled ones.

Nothing is left out but `launch SGLang on a GPU`: the engine behind SGLang's protocol is our own.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toolkit_here import need_engine

from internalize.arms.segment import run_segment
from internalize.base.hub import verified
from internalize.evals import probes as probes_module
from internalize.files import digest, read_json, read_jsonl
from internalize.receipts import Receipt, read_receipt
from internalize.stages import run_stage
from internalize.store import Store
from internalize.study import load_study
from internalize.workflow import Plan

HERE = Path(__file__).parent
PACKED = ("taught", "own", "again", "cited", "plain")
CUT = {"masked": "rows/cited", "first": "rows/taught"}
ROWS = (*PACKED, *CUT, "stated", "called", "asked", "judged", "labelled")


class Run:
    """A plan whose jobs run in this process."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self.store = plan, folder, Store(folder / "store")
        self.receipts: dict[str, Path] = {}

    def stage(self, job: str, name: str, inputs: dict[str, str], **wildcards: str) -> Receipt:
        """Runs one job as its rule does."""
        import json

        output = self.folder / f"results/receipts/{name}.json"
        spec = json.loads(self.plan.spec(job)(SimpleNamespace(**wildcards)))
        given = {label: self.receipts[what] for label, what in inputs.items()}
        stage = {"base": "fetch_base"}.get(job, job)
        run_stage(stage, spec, self.plan.code(stage), given, output, self.store, lambda text: None)
        self.receipts[name] = output
        return read_receipt(output)

    def payload(self, name: str) -> Path:
        """The payload of a job."""
        return self.store.open(read_receipt(self.receipts[name])).payload


@pytest.fixture(scope="module")
def run(repository: Path, hub_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    need_engine()
    folder = tmp_path_factory.mktemp("study")
    game = folder / "ring.py"
    source = (repository / "tests/games/arc/ring.py").read_text()
    game.write_text(source.replace("class Bar(", "LEVELS = LEVELS[:1]  # one level: short\n\n\nclass Bar("))
    names = {path.name: {} for path in hub_model.iterdir()}
    text = (HERE / "hub.yaml").read_text()
    for word, value in {
        "GAME_SHA256": hashlib.sha256(game.read_bytes()).hexdigest(),
        "GAME_FILE": str(game),
        "MODEL_SHA256": digest(verified(hub_model, names)),
        "MODEL": str(hub_model),
    }.items():
        text = text.replace(word, value)
    (folder / "hub.yaml").write_text(text)
    import os

    before = Path.cwd()
    os.chdir(folder)
    os.environ["INTERNALIZE_GAME_FILE"] = str(game)
    yield Run(Plan(load_study(folder / "hub.yaml"), repository), folder)
    os.chdir(before)
    del os.environ["INTERNALIZE_GAME_FILE"]
    shutil.rmtree(folder / "store")


def test_the_study_runs_from_knowledge_to_evals(run: Run) -> None:
    shared = {"base": "base", "knowledge": "knowledge"}
    knowledge = run.stage("knowledge", "knowledge", {}).facts
    assert len(knowledge["prompt_facts"]) == 8
    assert len(knowledge["prompt_notes"]) >= 32
    assert run.stage("base", "base", {}).facts["which"] == "folder"
    gate = run.stage("gate", "gate", shared).facts
    assert gate["passed"]
    assert gate["reference"]["tool_call_ending_rate"] == 1.0
    harvest = run.stage("harvest", "harvest/teacher", shared, harvest="teacher").facts
    assert harvest["valid"] == 4
    for name in ROWS:
        more = {"harvest": "harvest/teacher"} if name in PACKED else {"of": CUT[name]} if name in CUT else {}
        facts = run.stage("rows", f"rows/{name}", {**shared, **more}, rows=name).facts
        assert facts["audit_passed"], name
        assert facts["rows"] > 0 or facts["online"], name


def test_the_arm_trains_and_is_measured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    monkeypatch.setattr(probes_module, "STATES_PER_FACT", 1)  # each is scored behind a whole prompt: dear here
    monkeypatch.setattr(probes_module, "TOP_STATES", 1)
    receipts = run.folder / "results/receipts"
    wildcards = SimpleNamespace(arm="arm", seed="0", first="0000", last="0001")
    output = receipts / "arms/arm/seed0/steps0000-0001/step0001.json"
    inputs = {name: run.receipts[name] for name in ("base", "knowledge", "gate")}
    inputs |= {f"rows.{name}": run.receipts[f"rows/{name}"] for name in ("cited", "stated")}
    spec = json.loads(run.plan.spec("segment")(wildcards))
    run_segment(spec, run.plan.code("segment"), inputs, output, run.store, lambda text: None)
    first, last = read_receipt(output.with_name("step0000.json")), read_receipt(output)
    assert (first.facts["phase"], last.facts["phase"]) == ("sft", "rl")
    assert first.facts["loss"] > 0
    trained = next(row for row in read_jsonl(run.store.open(last).payload / "metrics.jsonl") if row["kind"] == "train")
    assert trained["logprob_abs_diff"] < 1e-4, "the servers play with the weights that the trainer has"
    run.receipts |= {"step0000": output.with_name("step0000.json"), "step0001": output}
    inputs_of = {"base": "base", "knowledge": "knowledge", "step0000": "step0000", "step0001": "step0001"}
    run.stage("evals", "evals/arm/seed0", inputs_of, arm="arm", seed="0")
    rows = list(read_jsonl(run.payload("evals/arm/seed0") / "metrics.jsonl"))
    probes = {row["step"]: row for row in rows if row["kind"] == "probe"}
    assert probes[0]["nll_top"] > 0
    assert probes[0]["nll_top"] != probes[1]["nll_top"], "each step is measured with its own weights"
    assert {"nll_play", "nll_qa", "margin_top", "qa_accuracy"} <= probes[1].keys()
    played = next(row for row in rows if row["kind"] == "eval")
    assert played["episodes"] == 2
    assert played["right_share"] is not None


def test_rows_hold_what_their_source_says(run: Run) -> None:
    cited = list(read_jsonl(run.payload("rows/cited") / "rows.jsonl.gz"))
    covered: dict[str, Any] = read_json(run.payload("rows/cited") / "coverage.json")
    assert all(sum(row["cite"]) > 5 for row in cited)
    assert sum(fact["cited"] for fact in covered["facts"].values()) == 2 * len(cited)
    masked = read_json(run.payload("rows/masked") / "coverage.json")
    assert sum(fact["trained"] for fact in masked["facts"].values()) == 0
    stated = read_json(run.payload("rows/stated") / "build_report.json")
    assert stated["rows"] == 8
