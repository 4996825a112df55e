"""What docs/add-a-row-source.md shows is what works."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from internalize.harness.episode import Episode
from internalize.rows.audit import audit
from internalize.rows.context import RowContext
from internalize.rows.sources import BUILDERS, build_rows


def shown(repository: Path, what: str) -> str:
    """A block of the page, by the remark above it."""
    page = (repository / "docs/add-a-row-source.md").read_text()
    found = re.search(rf"<!-- {what} -->\n```python\n(.*?)```", page, re.S)
    assert found is not None
    return found[1]


def test_the_builder_of_the_page_trains_on_won_episodes_alone(
    make_context: Callable[..., RowContext],
    teacher: list[Episode],
    own: list[Episode],
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: dict[str, Any] = {}
    exec(compile(shown(repository, "module: won"), "won.py", "exec", dont_inherit=True), module)
    monkeypatch.setitem(BUILDERS, "won", module["build"])
    lost = [episode for episode in own if not episode.outcome.cleared]
    won = [episode for episode in teacher if episode.outcome.cleared]
    assert lost
    assert won
    context = make_context(episodes=[*lost, *won])
    rows = build_rows(context, {"type": "won"})
    assert context.dropped_episodes["not cleared"] == len(lost)
    assert rows
    assert {row.provenance.episode for row in rows} <= {episode.plan.id for episode in won}
    assert len(rows) + sum(context.dropped_episodes.values()) == len(lost) + len(won)
    assert audit(rows, context).passed


def test_the_settings_of_the_page_refuse_what_they_do_not_know(repository: Path) -> None:
    space: dict[str, Any] = {}
    imports = "from typing import Literal\nfrom internalize.study_model import Name, Settings\n"
    exec(compile(imports + shown(repository, "settings: won"), "won.py", "exec", dont_inherit=True), space)
    assert space["Won"](type="won").plain() == {"type": "won", "harvest": "own"}
    with pytest.raises(ValidationError, match="extra"):
        space["Won"](type="won", harvests="own")
