"""Whatever is done to an archive, `verify` names the file."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_study import MadeStudy
from typer.testing import CliRunner

from internalize import cli
from internalize.archive.chain import listed_models
from internalize.archive.layout import MANIFEST, RECEIPTS, SUMS
from internalize.archive.manifest import read_manifest, write_manifests
from internalize.archive.verify import verify
from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import digest, sha256_file


def kinds(root: Path) -> dict[str, list[str]]:
    """The archive's files by kind: the last suffixes, and where they lie."""
    found: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            name = path.relative_to(root).as_posix()
            found.setdefault(f"{name.split('/')[0]}/*{''.join(path.suffixes[-2:])}", []).append(name)
    return found


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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_damage_to_every_kind_of_file_is_named(archive: Path, data: st.DataObject) -> None:
    files = kinds(archive)
    name = data.draw(st.sampled_from(files[data.draw(st.sampled_from(sorted(files)))]), label="file")
    path = archive / name
    good = path.read_bytes()
    what = data.draw(st.sampled_from(["flip", "cut", "grow", "remove", "link", "swap", "add"]), label="damage")
    other = None
    try:
        if what == "flip" and good:
            at = data.draw(st.integers(0, len(good) - 1))
            path.write_bytes(good[:at] + bytes([good[at] ^ (1 << data.draw(st.integers(0, 7)))]) + good[at + 1 :])
        elif what == "cut" and good:
            path.write_bytes(good[: data.draw(st.integers(0, len(good) - 1))])
        elif what == "grow":
            path.write_bytes(good + data.draw(st.binary(min_size=1, max_size=9)))
        elif what == "link":
            path.unlink()
            path.symlink_to("/etc/hostname")
        elif what == "swap":
            other = archive / data.draw(st.sampled_from([n for group in files.values() for n in group if n != name]))
            theirs = other.read_bytes()
            path.write_bytes(theirs)
            other.write_bytes(good)
            if theirs == good:
                return
        elif what == "add":
            path.with_name(path.name + ".extra").write_bytes(b"x")
        else:
            path.unlink()
        named = {problem.path for problem in verify(archive, 1)}
        assert (name + ".extra" if what == "add" else name) in named
        if other is not None:
            assert other.relative_to(archive).as_posix() in named
    finally:
        path.with_name(path.name + ".extra").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(good)
        if other is not None:
            other.write_bytes(theirs)


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
