"""`internalize harness check`: what is installed, at which version, and does an episode come out right?

Invariant: `ok` means that the harness played a whole episode with the model and that its tokens, acts and
outcome are those of the in-process harness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from internalize.engine.protocol import SamplingParams
from internalize.errors import UserError
from internalize.games.protocol import Game
from internalize.harness.choose import AGENTS, INPROCESS, NAMES, make_harness
from internalize.harness.episode import Episode
from internalize.harness.installs import FOLDER, Install
from internalize.rollout.plans import single_plans

Status = Literal["ok", "missing", "other version", "failed"]
LEVEL, SECONDS = 2, 180.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one harness."""

    harness: str
    status: Status
    version: str = ""
    where: str = ""
    detail: str = ""


def check(
    base: Path,
    game: Game,
    names: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Finding]:
    """One finding a harness.

    Args:
        base: HF folder of the model that plays (the bundled one is enough).
        names: which harnesses; None means all.

    Raises:
        UserError: the model can't be read, or a name is unknown.
    """
    names = names or NAMES
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise UserError("unknown harness", got=" ".join(unknown), expected=" ".join(NAMES))
    from internalize.rollout.actor import load_engine  # torch

    engine, template, _ = load_engine(base, slots=8, game=game)
    sampling = SamplingParams(temperature=0.0, max_new_tokens=32, stop_ids=(template.stop_id,))
    plans = single_plans("check", 0, 1, [LEVEL])

    def play(name: str) -> Episode:
        settings = {"type": name} | ({"seconds": SECONDS} if name in AGENTS else {})
        harness = make_harness(settings, engine=engine, game=game, template=template, sampling=sampling)
        return harness.play(plans, seed_key=("harness check",))[0]

    expected = play(INPROCESS)
    findings = []
    for name in names:
        finding = _found(name)
        if finding.status == "ok":
            progress(f"{name}: playing an episode")
            try:
                finding = _judged(finding, expected if name == INPROCESS else play(name), expected)
            except UserError as error:  # for example packages that are not installed
                finding = replace(finding, status="failed", detail=f"{error.what}: {error.got} ({error.fix})")
        findings.append(finding)
    return findings


def failing(findings: Sequence[Finding], names: Sequence[str] | None = None) -> list[Finding]:
    """What is not as it should be: all that is not ok among `names`, and of the others what is installed and does
    not work."""
    wanted = set(names or ())
    return [f for f in findings if f.status != "ok" and (f.harness in wanted or f.status != "missing")]


def render(findings: Sequence[Finding]) -> str:
    """One line a harness."""
    lines = [
        f"{f.harness:<12} {f.status:<14} {f.version:<9} {' '.join(t for t in (f.where, f.detail) if t)}".rstrip()
        for f in findings
    ]
    return "\n".join(lines)


def _found(name: str) -> Finding:
    if name == INPROCESS:
        return Finding(name, "ok")
    agent = AGENTS[name]()
    install: Install | None = agent.find()
    if install is None:
        return Finding(name, "missing", detail=f"not in ${FOLDER} and not on PATH (scripts/install-clis.sh)")
    where = " ".join(install.command)
    if install.version != agent.version:
        return Finding(name, "other version", install.version, where, f"this release knows {agent.version}")
    return Finding(name, "ok", install.version, where)


def _judged(finding: Finding, episode: Episode, expected: Episode) -> Finding:
    if not episode.valid:
        return replace(finding, status="failed", detail=f"the episode does not count: {episode.reason}")
    if [c.output_ids for c in episode.calls] != [c.output_ids for c in expected.calls]:
        return replace(finding, status="failed", detail="other tokens than in process")
    if (episode.journal, episode.outcome) != (expected.journal, expected.outcome):
        return replace(finding, status="failed", detail="another game than in process")
    how = "cleared" if episode.outcome.cleared else "played to its end"
    return replace(finding, detail=f"{len(episode.calls)} calls, {how}")
