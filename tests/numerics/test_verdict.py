"""A verdict passes only on measured errors within their tolerance, and says what failed."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from internalize.errors import GateFailed
from internalize.numerics.stage import NumericGateFailed
from internalize.numerics.verdict import Case, Verdict, relative_error, require

GOOD = Case("layer 1", "[2, 3]", 1e-6, 1e-4)
BAD = Case("layer 2", "[4, 5]", 0.5, 1e-4, "worst: dq")


def test_no_case_and_nan_are_failures() -> None:
    assert Verdict("x", (GOOD,)).passed
    assert not Verdict("x", ()).passed
    assert not Verdict("x", (Case("a", "b", math.nan, 1.0),)).passed


def test_a_failure_names_layer_shape_and_error_of_every_case_worst_first() -> None:
    worse = Case("layer 3", "[6]", math.inf, 1e-4)
    with pytest.raises(GateFailed) as failure:
        require([Verdict("a", (GOOD, BAD, worse)), Verdict("b", (GOOD,)), Verdict("c", (BAD,))])
    assert failure.value.what == "numeric gate `a`, `c`"
    assert failure.value.where.startswith("a: layer 3, [6]")
    assert "a: layer 2, [4, 5]: relative error 0.5, allowed 0.0001 (worst: dq)" in failure.value.got
    assert "c: layer 2" in failure.value.got
    assert "layer 1" not in str(failure.value)


def test_figures_are_json_even_when_an_error_is_not_finite() -> None:
    import json

    json.dumps(Verdict("x", (Case("a", "b", math.inf, 1.0), GOOD)).figures(), allow_nan=False)


def test_relative_error() -> None:
    want = torch.tensor([3.0, 4.0])
    assert relative_error(want * 1.1, want) == pytest.approx(0.1, rel=1e-5)
    assert relative_error(torch.tensor([math.nan, 1.0]), want) == math.inf
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0.0


def test_the_error_survives_a_process_boundary() -> None:
    verdict = Verdict("a", (BAD,))
    error = NumericGateFailed(GateFailed("numeric gate `a`", where="here"), verdict)
    again = copy.deepcopy(error)
    assert (str(again), again.verdict) == (str(error), verdict)
