"""Packing: equal content gives equal bytes, and one folder is read without the others."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.archive.tarread import find_folder, members, read_folder, read_index, seek_table
from internalize.archive.tarzst import FRAME, TarZst, pack_tree
from internalize.errors import UserError
from internalize.seeds import rng


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes, one larger than a frame, one with a long name, one with an executable, one empty."""
    root = tmp_path_factory.mktemp("work")
    draw = rng("tar")
    for number in range(12):
        folder = root / f"ep{number:03d}" / "sub"
        folder.mkdir(parents=True)
        (folder / "journal.jsonl").write_text('{"a": 1}\n' * number)
        (folder.parent / "calls.jsonl").write_bytes(draw.randbytes(1000 * number))
    (root / "ep003" / "large.bin").write_bytes(draw.randbytes(2 * FRAME + 77))
    (root / "ep004" / ("n" * 150)).write_text("long name")
    (root / "ep005" / "run.sh").write_text("#!/bin/sh\n")
    (root / "ep005" / "run.sh").chmod(0o755)
    (root / "ep006" / "sub" / "ünïcode.txt").write_text("é")
    (root / "empty").mkdir()
    (root / "loose.txt").write_text("beside the folders")
    return root


def test_equal_content_gives_equal_bytes_whatever_the_times_owners_and_threads(work: Path, tmp_path: Path) -> None:
    pack_tree(work, tmp_path / "a.tar.zst")
    shutil.copytree(work, tmp_path / "copy")
    for number, path in enumerate(sorted((tmp_path / "copy").rglob("*"))):
        os.utime(path, (number, number))
        if path.is_file() and not path.stat().st_mode & 0o100:
            path.chmod(0o600)
    pack_tree(tmp_path / "copy", tmp_path / "b.tar.zst", threads=3)
    assert (tmp_path / "a.tar.zst").read_bytes() == (tmp_path / "b.tar.zst").read_bytes()
    index = [tmp_path / f"{name}.tar.zst.index.jsonl" for name in "ab"]
    assert index[0].read_bytes() == index[1].read_bytes()


def test_tar_and_zstd_read_it(work: Path, tmp_path: Path) -> None:
    pack_tree(work, tmp_path / "a.tar.zst")
    subprocess.run(["zstd", "-q", "-t", str(tmp_path / "a.tar.zst")], check=True)
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "--zstd", "-xf", str(tmp_path / "a.tar.zst"), "-C", str(tmp_path / "out")], check=True)
    (tmp_path / "out" / "loose.txt").replace(tmp_path / "out" / "loose.txt")
    done = subprocess.run(["diff", "-r", str(work), str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert os.access(tmp_path / "out/ep005/run.sh", os.X_OK)


def test_one_folder_is_read_from_its_own_frames(work: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.tar.zst"
    pack_tree(work, target)
    for folder in read_index(target):
        expected = {
            f"{folder.folder}/{path.relative_to(work / folder.folder).as_posix()}": path.read_bytes()
            for path in (work / folder.folder).rglob("*")
            if path.is_file() and folder.folder != "."
        }
        if folder.folder != ".":
            assert {one.name: one.data.read() for one in read_folder(target, folder.folder)} == expected
    # damage another frame: the folder does not care
    frames = seek_table(target)
    assert len(frames) >= 3
    data = bytearray(target.read_bytes())
    data[frames[0][0] + 20] ^= 0xFF
    target.write_bytes(data)
    assert [one.name for one in read_folder(target, "ep011")] == ["ep011/calls.jsonl", "ep011/sub/journal.jsonl"]


def test_an_episode_is_found_by_its_own_name(work: Path, tmp_path: Path) -> None:
    with TarZst(tmp_path / "a.tar.zst") as packed:
        for folder in ("step0000/r1", "step0001/r2", "eval-step0000/e", "eval-step0001/e"):
            packed.begin(folder)
            packed.add("x", b"1")
    assert find_folder(tmp_path / "a.tar.zst", "r2") == "step0001/r2"
    assert find_folder(tmp_path / "a.tar.zst", "eval-step0001/e") == "eval-step0001/e"
    with pytest.raises(UserError, match="2 episodes"):
        find_folder(tmp_path / "a.tar.zst", "e")
    with pytest.raises(UserError, match="no such episode"):
        find_folder(tmp_path / "a.tar.zst", "nobody")


def test_links_and_files_that_grow_are_not_packed(tmp_path: Path) -> None:
    (tmp_path / "in" / "ep").mkdir(parents=True)
    (tmp_path / "in" / "ep" / "link").symlink_to("/etc/hostname")
    with pytest.raises(UserError, match="only regular files"):
        pack_tree(tmp_path / "in", tmp_path / "a.tar.zst")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.text("abcé/", min_size=1, max_size=130), st.binary(max_size=3000)), max_size=8))
def test_what_goes_in_comes_out(tmp_path_factory: pytest.TempPathFactory, files: list[tuple[str, bytes]]) -> None:
    target = tmp_path_factory.mktemp("round") / "a.tar.zst"
    named = {f"{number}-{name.replace('/', '_')}": data for number, (name, data) in enumerate(files)}
    with TarZst(target) as packed:
        packed.begin("ep")
        for name, data in named.items():
            packed.add(name, data)
    assert {one.name: one.data.read() for one in members(target)} == {f"ep/{n}": d for n, d in named.items()}
