"""Real agent CLIs, if they are installed (`clis.py`)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clis import installed, missing

from internalize.engine.protocol import SamplingParams
from internalize.games.protocol import Game
from internalize.harness.choose import AGENTS
from internalize.harness.cli_episode import CliHarness
from internalize.language.template import Template


@pytest.fixture(params=sorted(AGENTS))
def agent(request: pytest.FixtureRequest) -> Any:
    return installed(request.param)


@pytest.fixture(scope="session")
def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        missing("strace is not installed")
    return str(found)


@pytest.fixture(scope="session")
def base(repository: Path, game: Game) -> Any:
    """(engine, template) of the bundled tiny model."""
    from internalize.rollout.actor import load_engine

    return load_engine(repository / "prebuilt/dipwheel", slots=8, game=game)[:2]


@pytest.fixture
def make(game: Game) -> Callable[..., CliHarness]:
    def make(agent: Any, engine: Any, template: Template, **more: Any) -> CliHarness:
        sampling = SamplingParams(more.pop("temperature", 0.0), 32, (template.stop_id,))
        return CliHarness(agent, engine, game, template, sampling, seconds=120.0, **more)

    return make
