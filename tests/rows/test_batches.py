"""Optimizer batches from rows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.errors import UserError
from internalize.files import write_json, write_jsonl
from internalize.records import RowProvenance, SftRow
from internalize.rows.batches import read_rows, sequence_of, sft_batches


def row(name: str, turns: int = 1) -> SftRow:
    return SftRow(
        tokens=[2, 3, 5, 4],
        weights=[0.0, 0.5, 1.0, 1.0],
        cite=[0, 1, 1, 0],
        source="armc",
        provenance=RowProvenance(episode=name, turns=turns),
    )


ROWS = st.lists(st.integers(0, 9), min_size=1, max_size=12).map(
    lambda turns: [row(f"e{i}", n) for i, n in enumerate(turns)]
)


@settings(deadline=None)
@given(ROWS, st.integers(1, 5), st.integers(1, 40), st.integers(0, 99))
def test_a_batch_holds_just_enough_turns(rows: list[SftRow], steps: int, turns: int, seed: int) -> None:
    of = {r.provenance.episode: max(1, r.provenance.turns) for r in rows}
    batches = sft_batches(rows, steps, turns, random.Random(seed))
    assert len(batches) == steps
    for batch in batches:
        sizes = [of[s.episode] for s in batch]
        assert sum(sizes) >= turns > sum(sizes[:-1])


@given(st.floats(0.0, 64.0))
def test_the_cite_weight_falls_on_cited_tokens_only(weight: float) -> None:
    assert sequence_of(row("e"), weight).ce_weights == [0.0, 0.5 * weight, weight, 1.0]


def test_equal_generators_give_equal_batches_and_rows_come_evenly() -> None:
    rows = [row(f"e{i}") for i in range(4)]
    one, two = (sft_batches(rows, 50, 8, random.Random(3)) for _ in range(2))
    assert one == two
    drawn = Counter(s.episode for batch in one for s in batch)
    assert min(drawn.values()) > 70


def test_no_rows_is_an_error() -> None:
    with pytest.raises(UserError, match="no rows"):
        sft_batches([], 1, 1, random.Random(0))


def test_row_files_are_read_back(tmp_path: Path) -> None:
    rows = [row("a", 2), row("b")]
    write_jsonl(tmp_path / "rows.jsonl.gz", (r.model_dump() for r in rows))
    assert read_rows(tmp_path).rows == rows
    assert read_rows(tmp_path).online is None
    write_json(tmp_path / "online.json", {"episodes": 4})
    assert read_rows(tmp_path).online == {"episodes": 4}
