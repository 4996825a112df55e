"""Whatever is done to an archive, `verify` names the file."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_study import KINDS, MadeStudy, kinds
from typer.testing import CliRunner

from internalize import cli
from internalize.archive.chain import listed_models
from internalize.archive.layout import MANIFEST, RECEIPTS, SUMS
from internalize.archive.manifest import read_manifest, write_manifests
from internalize.archive.verify import verify
from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import digest, sha256_file
from internalize.seeds import rng

Damage = Callable[[Path, random.Random], None]


def alike(name: str) -> str:
    """What a file is: its path without the names of runs and the numbers of steps."""
    return re.sub(r"(?<=^runs/)[^/]+|offline-run-[^/]+|\d+(?=\.pt$)", "*", name)


def one_of_each(root: Path) -> list[str]:
    """A file of every kind, but for the manifests."""
    names = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*")) if path.is_file()]
    return sorted({alike(name): name for name in names if name not in (MANIFEST, SUMS)}.values())


def test_a_whole_archive_has_no_problems_and_coreutils_agree(finished: MadeStudy) -> None:
    models = finished.archive.with_name("models")
    assert verify(finished.archive, 1, models=models) == []
    done = subprocess.run(
        ["sha256sum", "--check", "--quiet", SUMS], cwd=finished.archive, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    listed = {line.partition("  ")[2] for line in (finished.archive / SUMS).read_text().splitlines()}
    there = {p.relative_to(finished.archive).as_posix() for p in finished.archive.rglob("*") if p.is_file()}
    assert there - listed == {SUMS}
    assert listed <= there


def test_the_archive_has_every_kind_of_file(finished: MadeStudy) -> None:
    assert kinds(finished.archive) == KINDS


def flip(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    replace(path, bytes(data))


def cut(path: Path, draw: random.Random) -> None:
    replace(path, path.read_bytes()[: draw.randrange(path.stat().st_size)])


def grow(path: Path, draw: random.Random) -> None:
    replace(path, path.read_bytes() + draw.randbytes(1 + draw.randrange(9)))


def remove(path: Path, draw: random.Random) -> None:
    path.unlink()


def link(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.symlink_to("/etc/hostname")


def replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


DAMAGES = (flip, cut, grow, remove, link)


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_to_every_kind_of_file_is_named(damage: Damage, archive: Path) -> None:
    (model,) = archive.with_name("models").iterdir()
    for root in (archive, model):
        names, draw = one_of_each(root), rng("damage", damage.__name__)
        assert len(names) >= (50 if root == archive else 5)
        for name in names:
            damage(root / name, draw)
        assert {problem.path for problem in verify(root, 1)} == set(names)


def test_files_that_are_added_or_swapped_are_named_beside_every_kind(archive: Path) -> None:
    names = one_of_each(archive)
    for name in names:
        (archive / f"{name}.extra").write_bytes(b"x")
    assert {problem.path for problem in verify(archive, 1)} == {f"{name}.extra" for name in names}
    for name in names:
        (archive / f"{name}.extra").unlink()
    whole = [(archive / name).read_bytes() for name in names]
    for name, data in zip(names, [*whole[1:], whole[0]], strict=True):
        replace(archive / name, data)
    same = {name for name, mine, other in zip(names, whole, [*whole[1:], whole[0]], strict=True) if mine == other}
    assert {problem.path for problem in verify(archive, 1)} == set(names) - same
    assert len(same) < 5


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_single_damage_anywhere_is_named_alone(archive: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([MANIFEST, SUMS, *one_of_each(archive)]), label="file")
    damage = data.draw(st.sampled_from(DAMAGES), label="damage")
    good = (archive / name).read_bytes()
    try:
        damage(archive / name, random.Random(data.draw(st.integers(0, 999))))
        named = {problem.path for problem in verify(archive, 1)}
        assert named == {name} or (name == MANIFEST and named == {MANIFEST, SUMS})
    finally:
        (archive / name).unlink(missing_ok=True)
        (archive / name).write_bytes(good)


def test_what_is_wrong_is_said(archive: Path) -> None:
    path = archive / "knowledge-set/atoms.jsonl"
    good = path.read_bytes()
    path.write_bytes(good[:-3])
    (archive / "checkpoints/series.md").unlink()
    (archive / "more.txt").write_text("x")
    told = {problem.path: problem.what for problem in verify(archive, 1)}
    assert told["knowledge-set/atoms.jsonl"] == f"truncated: {len(good) - 3} bytes instead of {len(good)}"
    assert told["checkpoints/series.md"] == "missing"
    assert told["more.txt"].startswith("extra")
    done = CliRunner().invoke(cli.app, ["verify", str(archive)])
    assert done.exit_code == 1
    assert "knowledge-set/atoms.jsonl: truncated" in done.stdout
    a, b = archive / "metrics/eval.jsonl", archive / "metrics/probe.jsonl"
    a_bytes, b_bytes = a.read_bytes(), b.read_bytes()
    a.write_bytes(b_bytes)
    b.write_bytes(a_bytes)
    said = {(problem.path, problem.what) for problem in verify(archive, 1)}
    assert ("metrics/eval.jsonl", "holds what metrics/probe.jsonl should hold") in said


def test_without_a_manifest_the_sums_still_name_what_changed(archive: Path) -> None:
    (archive / MANIFEST).write_text("{}")
    (archive / "README.md").write_text("another")
    named = {problem.path for problem in verify(archive, 1)}
    assert {MANIFEST, "README.md"} <= named
    (archive / MANIFEST).unlink()
    (archive / SUMS).unlink()
    with pytest.raises(MissingPayload, match="no archive here"):
        verify(archive, 1)


def test_a_manifest_that_points_outside_is_refused(archive: Path) -> None:
    manifest = read_manifest(archive)
    manifest.files["../../etc/hostname"] = next(iter(manifest.files.values()))
    write_manifests(archive, manifest)
    with pytest.raises(CorruptPayload, match="leaves the archive"):
        read_manifest(archive)


def test_a_model_that_lies_elsewhere_is_refused(archive: Path) -> None:
    path = archive / "checkpoints/checkpoints.jsonl"
    text = path.read_text().replace("small-recite-seed0-iter1-frozen-adam", "../../somewhere")
    path.unlink()
    path.write_text(text)
    with pytest.raises(CorruptPayload, match="leads out"):
        listed_models(archive)


def forge(archive: Path, change: object) -> None:
    """Rewrites one receipt and makes every manifest fit again, as someone would who wants to hide it."""
    rows = [json.loads(line) for line in (archive / RECEIPTS).read_text().splitlines()]
    assert callable(change)
    rows = change(rows)
    (archive / RECEIPTS).unlink()
    (archive / RECEIPTS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    manifest = read_manifest(archive)
    manifest.files[RECEIPTS].sha256 = sha256_file(archive / RECEIPTS)
    manifest.files[RECEIPTS].bytes = (archive / RECEIPTS).stat().st_size
    write_manifests(archive, manifest)


def test_the_chain_is_checked_behind_manifests_that_fit(archive: Path, tmp_path: Path) -> None:
    def set_fact(rows: list[dict[str, str]]) -> list[dict[str, str]]:
        return [
            {**r, "facts": r["facts"].replace("0.5", "0.4")} if r["name"] == "step.recite.0.0001" else r for r in rows
        ]

    def drop_knowledge(rows: list[dict[str, str]]) -> list[dict[str, str]]:
        return [row for row in rows if row["stage"] != "knowledge"]

    def drop_the_parent_of_rows(rows: list[dict[str, str]]) -> list[dict[str, str]]:
        return [row for row in rows if row["name"] != "rows.teacher_turns"]

    def other_parent(rows: list[dict[str, str]]) -> list[dict[str, str]]:
        base = next(row["hash"] for row in rows if row["stage"] == "base")

        def moved(row: dict[str, str]) -> dict[str, str]:
            parents = json.loads(row["parents"])
            return {**row, "parents": json.dumps({**parents, "knowledge": base})}

        return [moved(row) if row["name"] == "step.none.0.0000" else row for row in rows]

    for number, (change, words) in enumerate(
        (
            (set_fact, "step step.recite.0.0001: its hash does not follow"),
            (drop_knowledge, "no way back to the knowledge"),
            (drop_the_parent_of_rows, "rows rows.curated: the receipt of its input `of` is not here"),
            (other_parent, "step step.none.0.0000: its key does not follow"),
        )
    ):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(archive, copy)
        forge(copy, change)
        assert any(words in problem.what for problem in verify(copy, 1)), words


def test_a_file_that_its_receipt_does_not_know_is_named(archive: Path) -> None:
    manifest = read_manifest(archive)
    path = archive / "knowledge-set/atoms.jsonl"
    path.unlink()
    path.write_text('{"claim": "another"}\n')
    entry = manifest.files["knowledge-set/atoms.jsonl"]
    entry.sha256, entry.bytes = sha256_file(path), path.stat().st_size
    write_manifests(archive, manifest)
    assert [(problem.path, "not a file of its receipt" in problem.what) for problem in verify(archive, 1)] == [
        ("knowledge-set/atoms.jsonl", True)
    ]


def test_a_file_that_was_taken_out_of_the_manifest_too_is_named(archive: Path) -> None:
    manifest = read_manifest(archive)
    gone = ("runs/none-seed0/episodes.jsonl", "metrics/eval.jsonl")
    for path in gone:
        (archive / path).unlink()
        del manifest.files[path]
    write_manifests(archive, manifest)
    named = {problem.path for problem in verify(archive, 1)}
    assert named == set(gone)


def test_a_manifest_that_names_no_receipt_hides_nothing(archive: Path) -> None:
    manifest = read_manifest(archive)
    manifest.archive_receipt = None
    write_manifests(archive, manifest)
    assert [problem.path for problem in verify(archive, 1)] == ["state/archive-receipt.json"]


def test_published_weights_lead_back_to_the_knowledge(archive: Path) -> None:
    models = archive.with_name("models")
    assert verify(archive, 1, models=models) == []
    (model,) = models.iterdir()
    card = (model / "README.md").read_text()
    assert "after iteration 1: 1 SFT step, 1 RL step." in card
    assert re.search(r"mean shaped return [+-]\d\.\d{3}, \d/4 episodes cleared \(95 %: \d+% to \d+%\)", card)
    weights = model / "model-00001-of-00001.safetensors"
    weights.unlink()
    weights.write_bytes(b"other")
    assert any("safetensors" in problem.path for problem in verify(archive, 1, models=models))
    manifest = read_manifest(model)
    entry = manifest.files[weights.name]
    entry.sha256, entry.bytes = sha256_file(weights), 5
    write_manifests(model, manifest)
    assert any("not a file of its receipt" in problem.what for problem in verify(archive, 1, models=models))


def test_the_manifest_names_what_made_each_file(finished: MadeStudy) -> None:
    manifest = read_manifest(finished.archive)
    plain = json.loads((finished.archive / MANIFEST).read_text())
    told = plain.pop("digest")
    assert told == digest(plain)
    assert manifest.total_files == len(manifest.files)
    volatile = {path for path, file in manifest.files.items() if file.receipt is None}
    assert all(p.startswith(("state/", "README", "ro-crate")) or "/meminfo/" in p for p in volatile), volatile
    assert manifest.files["metrics/eval.jsonl"].schema_version == 1
    assert manifest.files["runs/none-seed0/work.tar.zst"].media_type == "application/zstd"
    payload = finished.archive / "runs/none-seed0/debug_rollout/0.pt"
    assert payload.stat().st_nlink > 1, "payloads are linked, not copied"
