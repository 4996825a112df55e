"""A profile is found where Snakemake would find it, and by its name in `profiles/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from internalize.cluster.profile import find_profile, read_profile
from internalize.errors import UserError


def test_a_profile_is_a_folder_a_name_or_the_users_own(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for folder, text in (("mine", "cores: 1"), ("config/snakemake/own", "cores: 2")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "profile.yaml").write_text(text)
    found = [find_profile(name, repository) for name in ("mine", str(tmp_path / "mine"), "own", "local")]
    assert found[:2] == [Path("mine"), tmp_path / "mine"]
    assert found[3] == repository / "profiles" / "local"
    assert [read_profile(folder)["cores"] for folder in found] == [1, 1, 2, "all"]


def test_what_is_missing_is_said(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such profile") as caught:
        find_profile(str(tmp_path), repository)
    assert "local, slurm" in caught.value.expected
