"""Comments, docstrings and dates change nothing; an edit that the stage can reach changes the fingerprint."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from internalize.fingerprint import IGNORED, Fingerprints
from internalize.stages import STAGES
from internalize.workflow import AGENT_MODULES

FILES = {
    "__init__.py": '"""A package."""\n',
    "stage.py": '"""A stage."""\nfrom p.used import f\nTABLE = {"x": "p.named"}\n\n\n'
    'def build():\n    """Builds."""\n'
    "    from . import lazy\n    return f(), lazy\n",
    "used.py": "from .deep.leaf import g\n\n\ndef f():\n    return g() + 1\n",
    "deep/__init__.py": "X = 1\n",
    "deep/leaf.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import types_only\n\n\n"
    "def g():\n    return 2\n",
    "lazy.py": "Y = 1\n",
    "named.py": "Z = 1\n",
    "types_only.py": "T = 1\n",
    "unused.py": "U = 1\n",
    "launcher.py": "L = 1\n",
}
REACHED = {"p", "p.stage", "p.used", "p.deep", "p.deep.leaf", "p.lazy", "p.named"}

Fingerprint = Callable[[], str]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "p" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "p"


def fingerprint(package: Path, cache: Path | None = None) -> str:
    return Fingerprints("p", package.parent, cache, frozenset({"p.launcher"})).of("p.stage")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_it_reaches_lazy_relative_and_named_modules_only(package: Path) -> None:
    assert set(Fingerprints("p", package.parent).reached("p.stage")) == REACHED


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("stage.py", '"""A stage."""', '"""Another story."""\n# and a comment'),
        ("stage.py", '    """Builds."""\n', ""),
        ("used.py", "    return g() + 1", "    return (\n        g()\n        + 1\n    )"),
        ("types_only.py", "T = 1", "T = 2"),
        ("unused.py", "U = 1", "U = 2"),
    ],
)
def test_what_changes_nothing(package: Path, name: str, old: str, new: str) -> None:
    before = fingerprint(package)
    edit(package / name, old, new)
    assert fingerprint(package) == before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("stage.py", "return f(), lazy", "return f(), lazy, 1"),
        ("used.py", "+ 1", "+ 2"),
        ("deep/leaf.py", "return 2", "return 3"),
        ("deep/__init__.py", "X = 1", "X = 2"),
        ("lazy.py", "Y = 1", "Y = 2"),
        ("named.py", "Z = 1", "Z = 2"),
    ],
)
def test_what_changes_it_and_a_revert_restores_it(package: Path, tmp_path: Path, name: str, old: str, new: str) -> None:
    cache = tmp_path / "cache.json"
    before = fingerprint(package, cache)
    edit(package / name, old, new)
    assert fingerprint(package, cache) != before
    edit(package / name, new, old)
    assert fingerprint(package, cache) == before


def test_dates_and_places_change_nothing(package: Path, tmp_path: Path) -> None:
    before = fingerprint(package)
    for path in package.rglob("*.py"):
        os.utime(path, (1, 1))
    assert fingerprint(package) == before
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    assert fingerprint(package.rename(moved / "p")) == before


def test_ignored_modules_do_not_count(package: Path) -> None:
    edit(package / "used.py", "def f", "from p.launcher import L\n\n\ndef f")
    before = fingerprint(package)
    edit(package / "launcher.py", "L = 1", "L = 2")
    assert fingerprint(package) == before


def test_modules_on_demand_count_where_they_are_asked_for(package: Path) -> None:
    prints = Fingerprints("p", package.parent, ignored=frozenset({"p.lazy"}))
    assert set(prints.reached("p.stage")) == REACHED - {"p.lazy"}
    assert set(prints.reached("p.stage", ["p.lazy"])) == REACHED
    assert prints.of("p.stage", ["p.lazy"]) == Fingerprints("p", package.parent).of("p.stage")


def test_play_in_process_does_not_depend_on_the_gateway() -> None:
    ours = Fingerprints()
    for module in ("internalize.rollout.harvest", "internalize.arms.segment", "internalize.evals.stage"):
        gateway = {"internalize.gateway.app", "internalize.gateway.session", "internalize.harness.mcp_server"}
        assert not gateway & set(ours.reached(module))
        assert gateway < set(ours.reached(module, AGENT_MODULES))


def test_the_cache_saves_reading_and_a_broken_one_is_no_harm(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache.json"
    before = fingerprint(package, cache)
    stamp = (package / "used.py").stat()
    size = stamp.st_size
    (package / "used.py").write_text("#" * size)  # another meaning, same size and time: the cache must be what answers
    os.utime(package / "used.py", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert fingerprint(package, cache) == before
    cache.write_text('{"version": 1, "files": [')
    assert fingerprint(package, cache) != before


def test_an_unknown_module_is_an_error(package: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"p\.nothing"):
        Fingerprints("p", package.parent).of("p.nothing")


def test_every_stage_of_this_package_has_one() -> None:
    ours = Fingerprints()
    for module in (*STAGES.values(), "internalize.arms.segment"):
        reached = ours.reached(module)
        assert module in reached
        assert not IGNORED & set(reached)
        schema = {"internalize.study", "internalize.study_arms", "internalize.specs", "internalize.schedule"}
        assert not schema & set(reached), "adding a key to the study file would rerun everything"
