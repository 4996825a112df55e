"""A site file is read strictly, and says in words what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from internalize.cluster.site import Site
from internalize.errors import UserError

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"acount": "x"}, "did you mean `account`?"),
    "unknown key below": ({"gpu": {"partion": "x"}}, "did you mean `partition`?"),
    "unknown key of a rule": ({"rules": {"evals": {"minute": 3}}}, "did you mean `minutes`?"),
    "wrong type": ({"gpu": {"minutes": "12h"}}, "site file: site.gpu.minutes"),
    "no such placement": ({"rules": {"evals": {"placement": "gpus"}}}, "site.rules.evals.placement"),
    "an option with its own key": ({"cpu": {"extra": "--time=3"}}, "has its own key"),
    "a signal too late": ({"signal_seconds": 5}, "site.signal_seconds"),
}


@pytest.mark.parametrize(("settings", "words"), BAD.values(), ids=BAD)
def test_a_wrong_site_is_explained(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        Site.from_config({"site": settings})
    assert words in str(caught.value)


def test_no_site_is_no_cluster() -> None:
    assert Site.from_config({"study": "config/mini.yaml"}) is None


def test_the_account_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SBATCH_ACCOUNT", "SLURM_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert Site().paying is None
    monkeypatch.setenv("SBATCH_ACCOUNT", "brics.u1")
    assert Site().paying == "brics.u1"
    assert Site(account="own").paying == "own"


def test_shipped_sites_are_valid(repository: Path) -> None:
    files = [repository / "profiles/slurm/site.yaml", *sorted((repository / "profiles/slurm/sites").glob("*.yaml"))]
    assert len(files) > 2
    for file in files:
        assert Site.from_config(yaml.safe_load(file.read_text())) is not None
