"""The page of a study: one file that opens from disk, without a server and without a network.

Invariant: the page refers to nothing but its own side files, which lie in `episodes/` beside it and are loaded only
when an episode of theirs is asked for (by script tags: a page from disk may not fetch).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from internalize.files import write_text
from internalize.report import assets, episodes
from internalize.report.evidence import Evidence
from internalize.report.page_data import page_data
from internalize.report.results import Results

Row = dict[str, Any]
INLINE = 1400
"""Rollouts and evals of which episodes lie in the page itself; of more, evenly spread ones."""
SIDE = "episodes"
MARKER = re.compile(r"\{\{(\w+)\}\}")


def write_page(results: Results, output: Path, everything: bool, progress: Callable[[str], None]) -> None:
    """Writes the page and, if `everything`, a side file with all episodes of each rollout and eval.

    Raises:
        UserError: a file of the study is missing or damaged, or the page cannot be written.
    """
    evidence = Evidence(results)
    data = page_data(evidence)
    told = {**data, "viewer": _viewer(evidence, output.parent / SIDE, everything)}
    parts = {
        "title": escape(f"{data['study']['name']}: what happened"),
        "css": (assets.STATIC / "page.css").read_text(),
        "data": _json(told),
        "vega": assets.vega(),
        "scripts": assets.scripts(),
    }
    template = (assets.STATIC / "index.html").read_text()
    write_text(output, MARKER.sub(lambda match: parts[match[1]], template))
    progress(f"page: {output}, {output.stat().st_size} bytes")


def _viewer(evidence: Evidence, side: Path, everything: bool) -> Row:
    """Settings of the viewer, the index of all episodes, and those that lie in the page."""
    results = evidence.results
    found = episodes.shelves(results, evidence.data)
    narrator = episodes.Narrator(results)
    stride = max(1, -(-len(found) // INLINE))
    inline = {shelf.key: narrator.sample(shelf) for shelf in found[::stride]}
    if side.exists():
        shutil.rmtree(side)  # of another run of the study
    if everything:
        side.mkdir(parents=True)
        for shelf in found:
            text = f"page.shelve({json.dumps(shelf.key)}, {_json(narrator.everything(shelf))});\n"
            (side / f"{shelf.key}.js").write_text(text)
    index = [[shelf.key, shelf.arm, shelf.seed, shelf.step, shelf.source, everything] for shelf in found]
    return {**episodes.setting(results), "index": index, "inline": inline, "folder": SIDE}


def _json(value: Any) -> str:
    """JSON that may stand in a script element."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
