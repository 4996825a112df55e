"""A step trained again from its dump is the committed step, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_segment import output, run
from typer.testing import CliRunner

from internalize.arms.chain import Chain
from internalize.arms.replay import Replay
from internalize.checkpoints import layout
from internalize.cli import app
from internalize.errors import CorruptPayload, MissingPayload, UserError
from internalize.files import read_json, sha256_file
from internalize.receipts import Receipt, read_receipt, write_receipt
from internalize.store import Store
from internalize.train.trainer import Trainer

ARMS = {"recite": (5, ("teacher_turns",)), "both": (0, ("teacher_turns",)), "soft": (0, ("labelled",))}


@pytest.fixture(scope="module")
def ran(prepared):  # type: ignore[no-untyped-def]
    """SFT, RL, joint and soft-label steps."""
    for arm, (last, rows) in ARMS.items():
        run(prepared, arm, last=last, rows=rows)
    return prepared


def copy(ran, target: Path) -> SimpleNamespace:  # type: ignore[no-untyped-def]
    """The results, and the store by hard links."""
    shutil.copytree(ran.work / "results", target / "results")
    shutil.copytree(ran.work / "store", target / "store", copy_function=os.link)
    return SimpleNamespace(results=target / "results", store=Store(target / "store"))


@pytest.mark.parametrize("arm", ARMS)
def test_every_step_comes_out_bit_for_bit(ran, arm: str) -> None:  # type: ignore[no-untyped-def]
    chain = Chain(ran.work / "results", ran.store, arm, 0)
    with Replay(chain, 0) as replay:
        for step in chain.receipts:
            outcome = replay.compare(step)
            assert (outcome.equal, outcome.within, outcome.largest, outcome.what) == (True, True, None, "")
    assert not list(ran.store.root.glob(".replay-*"))


def change_step(work: SimpleNamespace, step: int, factor: float) -> None:
    """Commits a checkpoint with one weight changed in place of the real one, as another device might have."""
    chain = Chain(work.results, work.store, "recite", 0)
    receipt = chain.receipt(step)
    folder = layout.iteration_folder(work.store.root / receipt.entry, step)
    config = read_json(chain.base(step).payload / "config.json")
    with Trainer(config, seed=0) as trainer:
        trainer.load(folder)
        weight = dict(trainer.model.named_parameters())["decoder.final_layernorm.weight"]
        weight.data[0] *= factor
        trainer.optimizer.reload_model_params()
        shutil.rmtree(folder)
        trainer.save(folder, iteration=step)
    files = [
        file.model_copy(
            update={
                "sha256": sha256_file(folder.parent / file.path),
                "bytes": (folder.parent / file.path).stat().st_size,
            }
        )
        for file in receipt.files
    ]
    save(work, receipt.model_copy(update={"files": files}), step)


def save(work: SimpleNamespace, receipt: Receipt, step: int) -> None:
    write_receipt(work.store.root / receipt.entry / "receipt.json", receipt)
    write_receipt(output(work.results.parent, "recite").with_name(f"step{step:04d}.json"), receipt)


def test_a_difference_is_measured_and_held_against_the_tolerance(ran, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    work = copy(ran, tmp_path)
    change_step(work, 2, 1 + 1e-4)
    with Replay(Chain(work.results, work.store, "recite", 0), 2) as replay:
        strict, loose, wide = (replay.compare(2, tolerance) for tolerance in (0.0, 1e-6, 1e-2))
    assert (strict.equal, strict.within) == (loose.equal, loose.within) == (False, False)
    assert (wide.equal, wide.within) == (False, True)
    assert strict.largest is not None
    assert 1e-6 < strict.largest < 1e-3
    assert "final_layernorm" in strict.what
    with pytest.raises(CorruptPayload, match="was made from another"):
        Chain(work.results, work.store, "recite", 0).before(3)


def test_a_changed_dump_is_refused(ran, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    work = copy(ran, tmp_path)
    chain = Chain(work.results, work.store, "recite", 0)
    dump = work.store.root / chain.receipt(1).entry / "rollout" / "1.pt"
    data = bytearray(dump.read_bytes())
    data[len(data) // 2] ^= 1
    dump.unlink()  # a hard link
    dump.write_bytes(data)
    with Replay(chain, 1) as replay, pytest.raises(CorruptPayload, match="changed"):
        replay.compare(1)


def test_the_command_says_what_it_found(ran, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    work = copy(ran, tmp_path)
    where = ["--results", str(work.results), "--store", str(work.store.root)]
    done = CliRunner().invoke(app, ["replay", "recite", "--step", "0", "--step", "3", *where])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == ["step 0 (sft): equal, bit for bit", "step 3 (rl): equal, bit for bit"]
    change_step(work, 1, 1.5)
    done = CliRunner().invoke(app, ["replay", "recite", "--step", "1", *where])
    assert done.exit_code == 1
    assert "step 1 (sft): DIFFERS" in done.output


def test_what_is_not_there_is_named(ran) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(MissingPayload, match="no step of arm `recit`"):
        Chain(ran.work / "results", ran.store, "recit", 0)
    with pytest.raises(MissingPayload, match="has no step 9"):
        Chain(ran.work / "results", ran.store, "recite", 0).receipt(9)


def test_a_step_leaves_through_slimes_format_and_comes_back(ran, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from internalize.rollout.dump import load_dump

    chain = Chain(ran.work / "results", ran.store, "recite", 0)
    where = ["--results", str(ran.work / "results"), "--store", str(ran.store.root)]
    for step in (0, 3):
        out, back = tmp_path / f"slime-{step}.pt", tmp_path / f"{step}.pt"
        done = CliRunner().invoke(app, ["slime-export", "recite", "--step", str(step), "--to", str(out), *where])
        assert done.exit_code == 0, done.output
        done = CliRunner().invoke(app, ["slime-import", "--from", str(out), "--to", str(back)])
        assert done.exit_code == 0, done.output
        committed = ran.store.root / chain.receipt(step).entry / "rollout" / f"{step}.pt"
        assert load_dump(back) == load_dump(committed)
        assert sha256_file(back) == sha256_file(committed)


def finish_evals(work: SimpleNamespace, arm: str) -> None:
    """A receipt of evals that measured every step of the arm."""
    chain = Chain(work.results, work.store, arm, 0)
    measured = {f"step{step:04d}": receipt.hash() for step, receipt in chain.receipts.items()}
    some = chain.receipt(0)
    path = work.results / f"receipts/evals/{arm}/seed0.json"
    write_receipt(path, some.model_copy(update={"stage": "evals", "parents": measured}))


def test_prune_and_bring_back(ran, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    work = copy(ran, tmp_path)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(repository / "prebuilt", tmp_path / "prebuilt")
    where = ["--results", str(work.results), "--store", str(work.store.root)]
    prune = ["prune", "--study", str(repository / "config/mini.yaml"), *where]
    prune += [
        word
        for s in ("arms.recite.steps=6", "arms.recite.schedule={type: sft_first, steps: 2}")
        for word in ("--set", s)
    ]
    prune += ["--set", "retention={keep_last: 1, keep_every: 4}"]
    chain = Chain(work.results, work.store, "recite", 0)
    folders = {step: layout.iteration_folder(work.store.root / r.entry, step) for step, r in chain.receipts.items()}
    before = {step: {p.name: sha256_file(p) for p in folder.iterdir()} for step, folder in folders.items()}

    done = CliRunner().invoke(app, prune)
    assert done.output.count("the evals have not measured it yet") == 3, done.output
    finish_evals(work, "recite")
    done = CliRunner().invoke(app, [*prune, "--dry-run"])
    assert [line.split(":")[0] for line in done.output.splitlines()[:-1] if "recite" in line] == [
        "keep   recite seed 0 step 0",
        "would delete recite seed 0 step 1",
        "would delete recite seed 0 step 2",
        "would delete recite seed 0 step 3",
        "keep   recite seed 0 step 4",
        "keep   recite seed 0 step 5",
    ]
    assert all(len(list(folder.iterdir())) == len(before[step]) for step, folder in folders.items())
    done = CliRunner().invoke(app, prune)
    assert done.exit_code == 0, done.output
    for step in (1, 2, 3):
        assert [path.name for path in folders[step].iterdir()] == ["pruned.json"]

    # again: nothing left to do, and what a killed prune left is finished
    (folders[1] / "metadata.json").write_text("{}")
    done = CliRunner().invoke(app, prune)
    assert done.output.count("pruned already") == 2, done.output
    assert [path.name for path in folders[1].iterdir()] == ["pruned.json"]

    # the store still knows the steps, the rest of a step is still read, and who wants the checkpoint is told
    assert work.store.find("step", chain.receipt(2).key) == chain.receipt(2)
    assert (work.store.open(chain.receipt(2)).payload / "metrics.jsonl").exists()
    with (
        Trainer(read_json(chain.base(2).payload / "config.json"), seed=0) as trainer,
        pytest.raises(MissingPayload) as e,
    ):
        trainer.load(folders[2])
    assert "step 2 was pruned" in e.value.what
    assert "internalize rematerialise recite --seed 0 --step 2" in e.value.fix
    assert "from step 0" in e.value.fix
    listed = CliRunner().invoke(app, ["checkpoints", *where])
    states = {
        row["step"]: row["state"]
        for row in read_json(work.results / "checkpoints.json")["checkpoints"]
        if row["arm"] == "recite"
    }
    assert states == {0: "complete", 1: "pruned", 2: "pruned", 3: "pruned", 4: "complete", 5: "complete"}, listed.output

    # the command that the error names brings it back, and the rest after it
    done = CliRunner().invoke(app, ["rematerialise", "recite", "--step", "2", *where])
    assert done.exit_code == 0, done.output
    assert {p.name: sha256_file(p) for p in folders[2].iterdir()} == before[2]
    assert [path.name for path in folders[1].iterdir()] == ["pruned.json"]
    done = CliRunner().invoke(app, ["rematerialise", "recite", *where])
    assert {step: {p.name: sha256_file(p) for p in f.iterdir()} for step, f in folders.items()} == before
    with pytest.raises(UserError, match="was not pruned"):
        CliRunner().invoke(app, ["rematerialise", "recite", "--step", "2", *where], catch_exceptions=False)


def test_nothing_goes_without_a_verified_later_checkpoint(ran, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from internalize.checkpoints.inventory import step_receipts
    from internalize.checkpoints.retention import decide, prune
    from internalize.study_checkpoints import Retention

    work = copy(ran, tmp_path)
    finish_evals(work, "recite")
    last = read_receipt(output(tmp_path, "recite"))
    shard = work.store.root / last.entry / "iter_0000005" / "__0_0.distcp"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1  # the same size: only its hash tells
    shard.unlink()
    shard.write_bytes(data)
    decisions = decide(Retention(keep_last=1), work.results, work.store, {("recite", 0): [5]})
    assert [d.row.step for d in decisions if not d.keep] == [0, 1, 2, 3, 4]
    assert all("the study does not have" in d.keep for d in decisions if d.row.arm != "recite")
    done = prune(decisions, work.store, step_receipts(work.results))
    assert all(d.keep for d in done)
    assert {d.keep.split(":")[0] for d in done if d.row.arm == "recite"} == {
        "step 5 is no replacement",
        "one of the last 1",
    }
    assert len(list(work.store.root.glob("step/*/iter_*/pruned.json"))) == 0


def test_what_is_published_or_to_be_converted_stays(ran, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from internalize.checkpoints.retention import decide
    from internalize.study_checkpoints import Retention

    work = copy(ran, tmp_path)
    finish_evals(work, "recite")

    def kept(published: list[int], **policy: object) -> dict[int, str]:
        decisions = decide(Retention(keep_last=1, **policy), work.results, work.store, {("recite", 0): published})
        return {d.row.step: d.keep for d in decisions if d.row.arm == "recite" and d.keep}

    assert kept([1, 3]) == {1: "published", 3: "published", 5: "one of the last 1"}
    waiting = "it is not converted yet"
    assert kept([1, 3], keep_published=False) == {1: waiting, 3: waiting, 5: "one of the last 1"}
    done = work.results / "receipts/convert/recite/seed0/step0001.json"
    step = Chain(work.results, work.store, "recite", 0).receipt(1)
    write_receipt(done, step.model_copy(update={"stage": "convert", "parents": {"step": step.hash()}}))
    assert kept([1, 3], keep_published=False) == {3: waiting, 5: "one of the last 1"}


def test_a_step_becomes_a_model_folder_and_a_folder_to_train_from(ran, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from internalize.stages import run_stage

    inputs = {"base": ran.receipts / "base.json", "step": output(ran.work, "recite").with_name("step0003.json")}
    spec = json.loads(ran.plan.spec("convert")(None))
    target = ran.receipts / "convert/recite/seed0/step0003.json"
    receipt = run_stage("convert", spec | {"dtype": "keep"}, "code", inputs, target, ran.store, lambda text: None)
    assert receipt.facts["converted"]
    assert receipt.facts["dtype"] == "float32"
    folder = ran.store.open(receipt).payload
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names >= {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors.index.json",
        "model-00001-of-00001.safetensors",
        "megatron/common.pt",
        "megatron/args.json",
        "megatron/latest_checkpointed_iteration.txt",
        "megatron/rollout/global_dataset_state_dict_3.pt",
    }
    assert not list(ran.store.root.glob("convert/*.converting"))
    done = CliRunner().invoke(app, ["convert", "--from", str(folder), "--to", str(tmp_path / "root")])
    assert done.exit_code == 0, done.output
    step = ran.store.root / read_receipt(inputs["step"]).entry
    config = read_json(folder / "config.json")
    with Trainer(config, seed=0) as trained, Trainer(config, seed=1) as again:
        trained.load(layout.iteration_folder(step, 3))
        assert again.load(layout.iteration_folder(tmp_path / "root", layout.read_tracker(tmp_path / "root"))) == 3
        a, b = trained.export_hf(), again.export_hf()
        assert all((a[name] == b[name]).all() for name in a)
    assert layout.read_cursor(tmp_path / "root", 3) == layout.read_cursor(step, 3)
