"""Of everything that several processes say at once, the cause is what is raised."""

from __future__ import annotations

import pytest

from internalize.errors import UserError
from internalize.runtime.answers import Failed, Gone, results
from internalize.runtime.failures import WorkerLost

NAMES = ("rank 0", "rank 1", "rank 2")


def asked(*answers: object) -> list[object]:
    return results(dict(zip(NAMES, answers, strict=True)), "train_step", "first\n\nlast\n")


def test_complete_answers_come_in_order() -> None:
    assert asked((1, 0.5), (2, 0.5), (3, 0.5)) == [(1, 0.5), (2, 0.5), (3, 0.5)]


def test_a_death_explains_the_failures_of_the_others() -> None:
    with pytest.raises(WorkerLost, match="rank 1 died during `train_step`") as error:
        asked(Failed("Connection closed by peer"), Gone("exit status -9"), None)
    assert error.value.got == "exit status -9; last words: first | last"
    assert error.value.where == "rank 1"


def test_what_the_user_can_change_comes_before_faults_of_ours() -> None:
    with pytest.raises(UserError, match="the disk is full"):
        asked(Failed("boom"), UserError("the disk is full"), None)


def test_a_fault_of_ours_is_shown_whole_and_not_tried_again() -> None:
    with pytest.raises(RuntimeError, match=r"rank 0 failed during `train_step`:\nTraceback .* boom"):
        asked(Failed("Traceback ... boom"), (1, 0.0), (1, 0.0))


def test_silence_is_a_loss() -> None:
    with pytest.raises(WorkerLost, match="no answer") as error:
        asked((1, 0.0), None, None)
    assert error.value.where == "rank 1, rank 2"
