"""`internalize base --rebuild`: make the shipped base again, hold it against the gate, say how it came to
be.

Invariant: a folder is replaced only by a base that passed the gate, and its provenance holds the gate's
figures. Bit-equal weights need the same torch build and processor; anywhere else the gate is what a
rebuild must meet.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from internalize.base.gate import measure, require
from internalize.base.prebuilt import FILES, PROVENANCE, Provenance
from internalize.base.recipe import Recipe
from internalize.base.stage import dipwheel, train
from internalize.files import write_json
from internalize.games.dipwheel.rules import POTS, STATIONS
from internalize.language.sayings import WordSayings
from internalize.language.template import Template
from internalize.rollout.actor import load_engine


def rebuild(
    folder: Path,
    game: dict[str, Any],
    recipe: Recipe,
    bounds: dict[str, Any],
    progress: Callable[[str], None],
    note: str = "",
) -> Provenance:
    """Train a base, hold it against the gate and put it into `folder`.

    Args:
        folder: where the base goes; what lies there is replaced at the end, file by file, provenance last.
        game: the study's `game` section.
        recipe: the study's `base.recipe`.
        bounds: the study's `base.gate`.
        note: text for the provenance.

    Raises:
        GateFailed: the new base misses a bound; `folder` stays as it was.
    """
    wheel = dipwheel(game)
    template = Template.of(wheel)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
        made = Path(scratch)
        start = time.process_time()
        provenance = train(made, recipe, wheel, template, progress)
        seconds = time.process_time() - start
        engine, spoken, _ = load_engine(made, game=wheel)
        facts = wheel.rules.facts()
        verdict = measure(engine, wheel, spoken, facts, bounds, progress, WordSayings(facts, (STATIONS, POTS)))
        require(verdict, bounds)
        provenance = provenance.model_copy(
            update={"gate": verdict.figures(), "cost": {"training_cpu_s": round(seconds, 1)}, "note": note}
        )
        write_json(made / PROVENANCE, provenance.model_dump())
        for name in (*FILES, PROVENANCE):
            shutil.move(made / name, folder / name)
    return provenance
