"""From a stage's `harness` settings to a harness.

Invariant: whatever is chosen plays the same episodes: with the same weights, plans and seeds all harnesses give
the same tokens, acts and outcomes. What an agent CLI adds is its own failures, which make an episode invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from internalize.engine.protocol import Engine, SamplingParams
from internalize.errors import UserError
from internalize.games.protocol import Game
from internalize.games.shaping import ShapingWeights
from internalize.harness.agent import Agent
from internalize.harness.claude_code import ClaudeCode
from internalize.harness.inprocess import InProcess
from internalize.harness.protocol import Harness
from internalize.harness.qwen_code import QwenCode
from internalize.language.dialogue import Dialogue

AGENTS: dict[str, Callable[[], Agent]] = {ClaudeCode.name: ClaudeCode, QwenCode.name: QwenCode}
INPROCESS = "inprocess"
NAMES = (INPROCESS, *AGENTS)


def make_harness(
    settings: Mapping[str, Any] | None,
    *,
    engine: Engine,
    game: Game,
    template: Dialogue,
    sampling: SamplingParams,
    shaping: ShapingWeights | None = None,
    max_context: int = 512,
    together: bool = False,
) -> Harness:
    """The harness of `settings`: `{type: inprocess}` (also None), or `{type: claude-code | qwen-code, parallel,
    seconds}`.

    Args:
        together: let an agent's calls share batches, which an engine behind HTTP needs; with an engine in this
            process the last bits of log-probs would depend on timing.

    Raises:
        UserError: an unknown type or key; the CLI is missing or of another version; the extra `harness` is not
            installed.
    """
    given = dict(settings or {})
    kind = given.pop("type", INPROCESS)
    unknown = sorted(given.keys() - ({"parallel", "seconds"} if kind in AGENTS else set()))
    known = (INPROCESS, *AGENTS)
    if kind not in known or unknown:
        raise UserError(
            "unknown harness setting",
            where="harness",
            expected=f"type: {' or '.join(known)}; agents also take parallel, seconds",
            got=f"type: {kind}" if kind not in known else " ".join(unknown),
        )
    weights = shaping or ShapingWeights()
    if kind == INPROCESS:
        return InProcess(engine, game, template, sampling, weights, max_context)
    try:
        from internalize.harness.cli_episode import CliHarness  # the web server, which others don't need
    except ModuleNotFoundError as error:
        raise UserError(
            "agent CLIs need more packages",
            where=f"harness {kind}",
            got=str(error),
            fix="pip install 'internalize[harness]' (from a checkout: pip install -e '.[harness]')",
        ) from error
    return CliHarness(
        AGENTS[kind](),
        engine,
        game,
        template,
        sampling,
        weights,
        max_context,
        parallel=int(given.get("parallel", 2)),
        seconds=float(given.get("seconds", 600.0)),
        together=together,
    )
