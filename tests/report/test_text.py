"""Numbers as text."""

from __future__ import annotations

import csv
import io

import pytest

from internalize.report import text


def test_numbers():
    assert text.number(0.314) == "0.31"
    assert text.number(0.314, sign=True) == "+0.31"
    assert text.number(None) == text.DASH


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0.0, "0 %"), (0.031, "3.1 %"), (0.0999, "10 %"), (0.3149, "31 %"), (1.0, "100 %")],
)
def test_shares(value, shown):
    assert text.share(value) == shown


def test_estimates_and_differences():
    row = {"d": 0.31, "d_low": 0.24, "d_high": 0.38, "d_noise": False, "e": -0.1, "e_low": None}
    assert text.estimate(row, "d") == "+0.31 [+0.24, +0.38]"
    assert text.estimate(row, "e") == "-0.10"
    assert text.estimate(row, "missing") == "-"
    assert text.difference(row, "d") == "+0.31 [+0.24, +0.38]"
    assert text.difference({**row, "d_noise": True}, "d") == "+0.31 [+0.24, +0.38] (inside the noise)"


def test_clears():
    row = {"x_clears": 3, "x_episodes": 96, "x_clears_low": 0.0107, "x_clears_high": 0.088}
    assert text.clears(row, "x") == "3/96 (3.1 %) [1.1 %, 8.8 %]"
    assert text.clears({"x_clears": None, "x_episodes": 0}, "x") == "-"


def test_markdown():
    assert text.markdown(["a", "b"], [["x|y", "1"]]) == "| a | b |\n|---|---:|\n| x/y | 1 |\n"
    assert "|---|---|" in text.markdown(["a", "b"], [], words=2)


def test_csv_keeps_every_column():
    made = list(csv.DictReader(io.StringIO(text.csv_text([{"a": 1, "b": None}, {"a": 0.123456789, "c": True}]))))
    assert made == [{"a": "1", "b": "", "c": ""}, {"a": "0.123457", "b": "", "c": "true"}]
