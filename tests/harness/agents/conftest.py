"""Real agent CLIs, if they are installed (`scripts/install-clis.sh`, `INTERNALIZE_CLI_DIR`).

Without them these tests are skipped, unless INTERNALIZE_REQUIRE_CLIS is set: then they fail (CI).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from internalize.engine.protocol import SamplingParams
from internalize.games.protocol import Game
from internalize.harness.choose import AGENTS
from internalize.harness.cli_episode import CliHarness
from internalize.language.template import Template


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cli: drives a real agent CLI; skipped where it is not installed")


def missing(what: str) -> None:
    """Skip, or fail where it must be there."""
    if os.environ.get("INTERNALIZE_REQUIRE_CLIS"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(params=sorted(AGENTS))
def agent(request: pytest.FixtureRequest) -> Any:
    agent = AGENTS[request.param]()
    found = agent.find()
    if found is None or found.version != agent.version:
        missing(f"{agent.name} {agent.version} is not installed (scripts/install-clis.sh)")
    return agent


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
def make(game: Game, tmp_path: Path) -> Callable[..., CliHarness]:
    def make(agent: Any, engine: Any, template: Template, **more: Any) -> CliHarness:
        sampling = SamplingParams(more.pop("temperature", 0.0), 32, (template.stop_id,))
        folder = tmp_path / "episodes"
        return CliHarness(agent, engine, game, template, sampling, folder=folder, seconds=120.0, **more)

    return make
