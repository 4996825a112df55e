"""A rerun loses nothing, whatever comes out: the same, something else, or nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filler import Filler

from internalize.control.drive import Driver
from internalize.control.rerun import ASIDE, perform
from internalize.control.selection import Selection, Wish, select
from internalize.errors import UserError
from internalize.receipts import read_receipt
from internalize.store import Store
from internalize.study import load_study
from internalize.workflow import RECEIPTS, Plan

RECITE = Path(f"{RECEIPTS}/arms/recite/seed0/steps0000-0003")


class Fake(Driver):
    """Stands in for Snakemake: does what a test says."""

    def __init__(self, act: Callable[[], int]) -> None:
        super().__init__(Path(), {})
        object.__setattr__(self, "act", act)

    def run(self, targets: object = (), forced: object = ()) -> int:
        return int(self.act())  # type: ignore[attr-defined]


@pytest.fixture
def plan(repository: Path, work: Path) -> Plan:
    study = load_study(repository / "config/mini.yaml", arms="none recite", set=["arms.recite.steps=4"])
    return Plan(study, repository)


@pytest.fixture
def store(plan: Plan) -> Store:
    made = Store(Path("store"))
    Filler(plan, made).fill()
    return made


def files(*below: str) -> dict[str, bytes]:
    return {
        path.as_posix(): path.read_bytes() for name in below for path in sorted(Path(name).rglob("*")) if path.is_file()
    }


def remake(chosen: Selection, store: Store, change: bool) -> int:
    """Makes the entries again from where they were set aside, changed or not."""
    for entry in chosen.entries:
        place = store.root / entry
        shutil.copytree(place.with_name(place.name + ASIDE), place)
        if change:
            receipt = json.loads((place / "receipt.json").read_text())
            receipt["facts"]["drawn"] = "otherwise"
            (place / "receipt.json").write_text(json.dumps(receipt))
    return 0


def test_a_wish_names_entries_and_receipts(plan: Plan, store: Store) -> None:
    chosen = select(Wish(arm="recite", first=2), plan, store)
    assert sorted(one.stage for one in chosen.entries.values()) == ["evals", "step", "step"]
    assert chosen.outputs == [f"{RECITE}/step0003.json", f"{RECEIPTS}/evals/recite/seed0.json"]
    assert chosen.targets == chosen.outputs, "there is no report yet"
    assert {one.stage for one in select(Wish(stage="evals"), plan, store).entries.values()} == {"evals"}
    assert len(select(Wish(stage="evals", arm="none"), plan, store).entries) == 1
    assert len(select(Wish(arm="none", first=1, only=True), plan, store).entries) == 1
    alone = select(Wish(rows="teacher_turns", only=True), plan, store)
    assert alone.targets == alone.outputs == [f"{RECEIPTS}/rows/teacher_turns.json"]


def test_wishes_that_name_nothing_are_refused(plan: Plan, store: Store) -> None:
    for wish, words in (
        (Wish(), "name one thing"),
        (Wish(arm="recite", rows="teacher_turns"), "name one thing"),
        (Wish(arm="recit"), "unknown arm"),
        (Wish(rows="nothing"), "unknown row set"),
        (Wish(stage="nothing"), "unknown stage"),
        (Wish(arm="recite", first=4), "no such step"),
        (Wish(arm="recite", seed=5), "no such seed"),
    ):
        with pytest.raises(UserError, match=words):
            select(wish, plan, store)


def test_the_same_again_leaves_everything_as_it_was(plan: Plan, store: Store) -> None:
    before = files("store/step", "store/evals", "results")
    chosen = select(Wish(arm="recite", first=2, only=True), plan, store)
    said: list[str] = []
    assert perform(chosen, Fake(lambda: remake(chosen, store, False)), store, said.append) == 0
    assert files("store/step", "store/evals", "results") == before
    assert said[-1] == "computed again: 1 results, 1 of them came out the same"


def test_a_run_that_makes_nothing_puts_everything_back(plan: Plan, store: Store) -> None:
    before = files("store", "results")
    chosen = select(Wish(arm="recite", first=1), plan, store)
    said: list[str] = []
    assert perform(chosen, Fake(lambda: 1), store, said.append) == 1
    assert files("store", "results") == before
    assert "put back, because they were not computed again: 4 results" in said

    def interrupted() -> int:
        assert not (RECITE / "step0003.json").exists(), "set aside: a run after a crash would make it again"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform(chosen, Fake(interrupted), store, said.append)
    assert files("store", "results") == before


def test_another_result_is_told_and_both_stay(plan: Plan, store: Store) -> None:
    chosen = select(Wish(arm="recite", first=2, only=True), plan, store)
    ((entry, old),) = chosen.entries.items()
    said: list[str] = []
    perform(chosen, Fake(lambda: remake(chosen, store, True)), store, said.append)
    assert any(line.startswith(f"differs: {entry};") for line in said)
    assert read_receipt(store.root / f"{entry}{ASIDE}" / "receipt.json") == old
    assert read_receipt(RECITE / "step0002.json").facts["drawn"] == "otherwise", "it names what is there now"
    assert not (RECITE / "step0003.json").exists(), "made from the old one: the next run makes it anew"
    assert (RECITE / "step0001.json").exists()
    assert said[-1] == "made from what differs, runs with the next run of the study: recite/seed0/steps0000-0003"
