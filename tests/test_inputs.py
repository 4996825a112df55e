"""The five forms of `--input` words."""

from __future__ import annotations

from pathlib import Path

import pytest

from internalize.errors import MissingPayload, UserError
from internalize.inputs import named_inputs, segment_path


@pytest.fixture
def arms(tmp_path: Path) -> Path:
    """Receipts of one arm: steps 0-1 and 2-2."""
    for first, last in ((0, 1), (2, 2)):
        folder = (tmp_path / segment_path("none", 3, first, last)).parent
        folder.mkdir(parents=True)
        for step in range(first, last + 1):
            (folder / f"step{step:04d}.json").touch()
    return tmp_path


def test_one_input_none_and_many() -> None:
    words = ["base=r/base.json", "of=", "rows.=r/receipts/rows/a.json r/receipts/rows/b.json"]
    assert named_inputs(words) == {
        "base": Path("r/base.json"),
        "rows.a": Path("r/receipts/rows/a.json"),
        "rows.b": Path("r/receipts/rows/b.json"),
    }
    assert list(named_inputs(["evals.=x/receipts/evals/none/seed0.json x/receipts/evals/base.json"])) == [
        "evals.none.0",
        "evals.base",
    ]


def test_the_steps_of_segments(arms: Path) -> None:
    lasts = [str(arms / segment_path("none", 3, *part)) for part in ((0, 1), (2, 2))]
    found = named_inputs([f"step*={' '.join(lasts)}"])
    assert list(found) == ["step0000", "step0001", "step0002"]
    assert found["step0000"] == Path(lasts[0]).with_name("step0000.json")
    assert list(named_inputs([f"step.*={lasts[1]}"])) == ["step.none.3.0002"]


def test_one_step_of_a_segment(arms: Path) -> None:
    last = arms / segment_path("none", 3, 0, 1)
    assert named_inputs([f"step@0000={last}"]) == {"step": last.with_name("step0000.json")}
    assert named_inputs([f"step@1={last}"]) == {"step": last}
    for word in (f"step@2={last}", f"step@x={last}", "step@0="):
        with pytest.raises(UserError, match="no such step"):
            named_inputs([word])


def test_a_missing_step_is_named(arms: Path) -> None:
    last = arms / segment_path("none", 3, 0, 1)
    last.with_name("step0000.json").unlink()
    with pytest.raises(MissingPayload, match="step 0 is gone"):
        named_inputs([f"step*={last}"])


@pytest.mark.parametrize("word", ["base", "=x.json", ".=x.json", "base=a.json b.json", "step*=results/base.json"])
def test_malformed_words(word: str) -> None:
    with pytest.raises(UserError):
        named_inputs([word])


def test_a_name_given_twice() -> None:
    with pytest.raises(UserError, match="two inputs are called `base`"):
        named_inputs(["base=a.json", "base=b.json"])
