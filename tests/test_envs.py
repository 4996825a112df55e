"""The locks of GPU nodes are whole, and the container takes what it installs from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PLATFORM = "aarch64-manylinux_2_34"
"""glibc 2.34: with an older one the resolver falls back to an SGLang of another year and a torch without a GPU."""
PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", re.M)
SECTIONS = {"help", "files", "post", "environment", "test"}


def lock(repository: Path, role: str) -> dict[str, str]:
    return dict(PINNED.findall((repository / f"envs/lock/{role}.{PLATFORM}.txt").read_text()))


@pytest.mark.parametrize("role", ["serve", "train"])
def test_a_lock_has_the_gpu_and_a_hash_for_everything(repository: Path, role: str) -> None:
    text = (repository / f"envs/lock/{role}.{PLATFORM}.txt").read_text()
    found = lock(repository, role)
    assert "triton" in found
    assert sum(name.startswith("nvidia-") for name in found) >= 10
    assert {"nvidia-nccl-cu13", "nvidia-cublas"} <= found.keys()
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert len(blocks) == len(found)
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text, "no address of a package registry"


def test_locks_hold_what_their_inputs_ask_for(repository: Path) -> None:
    import tomllib

    from packaging.requirements import Requirement

    serve, train = lock(repository, "serve"), lock(repository, "train")
    assert (serve["sglang"], serve["torch"]) == ("0.5.23", "2.14.1"), "SGLang pins its torch"
    asked = (repository / "envs/train.in").read_text().splitlines()[1:]
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = [one for name in ("serve", "hub", "cluster", "publish") for one in project["optional-dependencies"][name]]
    assert {*project["dependencies"], *extras} <= set(asked), "envs/train.in follows pyproject.toml"
    for line in asked:
        needed = Requirement(line)
        name = re.sub(r"[-_.]+", "-", needed.name).lower()
        assert needed.specifier.contains(train[name], prereleases=True), line


def test_the_container_recipe_is_sound(repository: Path) -> None:
    text = (repository / "envs/gpu.def").read_text()
    head, *parts = re.split(r"^%", text, flags=re.M)
    sections = {part.split("\n", 1)[0].strip(): part.split("\n", 1)[1] for part in parts}
    assert sections.keys() == SECTIONS
    assert re.fullmatch(r"Bootstrap: docker\nFrom: [\w./-]+:\d[\w.-]+\n\n", head), "a base image with a version"
    for line in sections["files"].split("\n"):
        if line.strip():
            source, target = line.split()
            assert (repository / source).exists(), source
            assert target.startswith("/opt/")
    installs = [line for line in sections["post"].splitlines() if "pip" in line]
    assert all("--no-deps" in line for line in installs)
    assert any("--require-hashes" in line for line in installs)
    assert "set -eu" in sections["post"]
    assert "INTERNALIZE_SGLANG" in sections["environment"]
