"""The page in a real Chromium: wide and narrow, light and dark. Screenshots are kept (INTERNALIZE_SCREENSHOTS)."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import REQUIRED, Browser, find
from disk import Disk

from internalize.report.page import write_page
from internalize.report.results import read_results

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
PLOTS = ("policies", "trajectories", "knowledge", "recital", "recited-not-used", "behaviour", "health", "cost")
SCREENSHOTS = "INTERNALIZE_SCREENSHOTS"
"""Variable that names the folder in which pictures are kept."""
MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = find()
    if program is None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"{REQUIRED} is set and there is no Chromium")
        pytest.skip("there is no Chromium here (Debian: apt install chromium)")
    opened = Browser(program)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def page(disk: Disk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "index.html"
    write_page(read_results(disk.results, disk.store), path, False, lambda text: None)
    return path


def keep(browser: Browser, tmp_path: Path, name: str) -> None:
    browser.picture(Path(os.environ.get(SCREENSHOTS) or tmp_path) / f"{name}.png")


def draw_all(browser: Browser) -> None:
    browser.ask("Promise.all(plots.all.map((one) => plots.draw(one, true)))")


def texts(browser: Browser, selector: str) -> list[str]:
    return browser.ask(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")


def rows_of(browser: Browser, table: str) -> list[list[str]]:
    """Texts of the cells of a table's body."""
    rows = f"[...document.querySelectorAll({json.dumps(table + ' tbody tr')})]"
    return browser.ask(f"{rows}.map((row) => [...row.cells].map((cell) => cell.textContent))")


def evidence_text(browser: Browser) -> str:
    return browser.ask("document.getElementById('evidence').innerText")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_is_drawn(browser: Browser, page: Path, tmp_path: Path, size: str, dark: bool):
    browser.look(*SIZES[size], dark)
    browser.open(page)
    draw_all(browser)
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.ask("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert browser.ask("document.documentElement.scrollWidth") == SIZES[size][0], "nothing sticks out"
    marks = browser.ask(
        "Object.fromEntries(plots.all.map((one) => [one.name, one.canvas.querySelectorAll('svg path').length]))"
    )
    assert tuple(marks) == PLOTS
    assert marks.pop("recited-not-used") == 0
    assert texts(browser, "#plot-recited-not-used .canvas") == ["Nothing of this was measured."]
    assert all(count > 10 for count in marks.values()), marks
    background = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    for section in ("summary", "arms", "trajectories", "episodes", "workflow"):
        browser.ask(f"document.getElementById('{section}').scrollIntoView()")
        keep(browser, tmp_path, f"{section}-{size}-{'dark' if dark else 'light'}")


def test_tables_show_what_the_files_hold(browser: Browser, page: Path, disk: Disk):
    browser.look(*SIZES["desktop"], False)
    browser.open(page)
    shown = rows_of(browser, "#arms-table")
    with (disk.results / "tables/sft_only.csv").open(newline="") as handle:
        told = {row["arm"]: row for row in csv.DictReader(handle)}
    marks = browser.ask("[...document.querySelectorAll('#arms-table tbody tr')].map((row) => row.cells[2].className)")
    for row, (arm, cells), mark in zip(shown, told.items(), marks, strict=True):
        assert row[0].startswith(arm)
        value = float(row[1].partition("[")[0].replace(MINUS, "-"))
        assert value == pytest.approx(float(cells["eval_return"]), abs=0.0051)
        assert row[3].startswith(f"{cells['eval_clears']}/{cells['eval_episodes']} ")
        assert (mark == "noise") == (cells["eval_diff_noise"] == "true")
    browser.ask("document.getElementById('tables').scrollIntoView()")
    browser.until("document.querySelector('#tables tbody tr')")
    assert [row[0] for row in rows_of(browser, "#tables")] == list(told)
    assert any(row[0] == "broken" and "limit 50%" in row[7] for row in rows_of(browser, "#registry-table"))
    assert browser.ask("document.querySelectorAll('.step.stopped').length") == 2


def test_plots_hold_the_values_of_the_metrics(browser: Browser, page: Path, disk: Disk, tmp_path: Path):
    browser.look(*SIZES["desktop"], False)
    browser.open(page)
    draw_all(browser)
    results = read_results(disk.results, disk.store)
    drawn = browser.ask("page.metrics('eval').map(({arm, seed, step, return_mean}) => [arm, seed, step, return_mean])")
    for arm, seed, step, mean in drawn:
        label = "evals.base" if arm is None else f"evals.{arm}.{seed}"
        rows = map(json.loads, (results.payload(label) / "metrics.jsonl").read_text().splitlines())
        (row,) = [row for row in rows if row["kind"] == "eval" and row["step"] == step]
        assert mean == pytest.approx(row["return_mean"], rel=1e-5)
    points = browser.ask(
        """plots.all.find((one) => one.name === "trajectories").view.data("source_0")
          .filter((row) => row.what === "rollout").map((row) => [row.arm, row.step, row.return])"""
    )
    with (disk.results / "tables/trajectories.csv").open(newline="") as handle:
        told = [[row["arm"], int(row["step"]), float(row["return"])] for row in csv.DictReader(handle)]
    assert points == told
    browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for button, suffix in enumerate(("svg", "png", "csv")):
        browser.ask(f"document.querySelectorAll('#plot-trajectories .tools button')[{button}].click()")
        assert browser.file(tmp_path / f"trajectories.{suffix}").stat().st_size > 500
    with (tmp_path / "trajectories.csv").open(newline="") as handle:
        assert [[row["arm"], int(row["step"]), float(row["return"])] for row in csv.DictReader(handle)] == told


def test_a_clicked_cell_shows_its_evidence(browser: Browser, page: Path, disk: Disk, tmp_path: Path):
    browser.look(*SIZES["desktop"], False)
    browser.open(page)
    cell = "#arms-table td[data-table=final][data-column=eval_return][data-row='1']"
    browser.ask(f"document.querySelector({json.dumps(cell)}).click()")
    keep(browser, tmp_path, "evidence-desktop-light")
    shown = evidence_text(browser)
    results = read_results(disk.results, disk.store)
    for seed in (0, 1):
        receipt = results.receipts[f"evals.recite.{seed}"]
        assert receipt.hash() in shown
        assert receipt.entry in shown
        sha = next(file.sha256 for file in receipt.files if file.path == "episodes/step-0003/episodes.jsonl")
        assert sha[:16] in shown
    assert "internalize explain final recite eval_return" in shown
    assert "snakemake --profile local" in shown
    assert texts(browser, "#evidence .measured") == ["1", "1"]
    parents = texts(browser, "#evidence dd button")
    browser.ask(f"document.querySelectorAll('#evidence dd button')[{parents.index('step.recite.0.0000')}].click()")
    assert results.receipts["step.recite.0.0000"].hash() in evidence_text(browser)
    browser.send("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    assert browser.ask("document.getElementById('evidence').hidden")
    assert browser.complaints() == []


def test_every_column_has_evidence(browser: Browser, page: Path):
    """In the first rows of every table the drawer opens and names a receipt, or says where the value is told."""
    browser.look(*SIZES["desktop"], False)
    browser.open(page)
    empty = browser.ask(
        """Object.entries(page.data.tables).flatMap(([name, {columns, rows}]) => columns.flatMap((column) =>
          rows.slice(0, 3).map((_, at) => {
            tables.evidence(name, at, column);
            const text = document.getElementById("evidence").innerText;
            return /hash|run.json|study file/.test(text) ? null : `${name} ${at} ${column}`;
          }))).filter(Boolean)"""
    )
    assert empty == []
    assert browser.complaints() == []


@pytest.mark.parametrize("size", SIZES)
def test_an_episode_is_stepped_through(browser: Browser, page: Path, tmp_path: Path, size: str):
    browser.look(*SIZES[size], False)
    browser.open(page)
    browser.ask("viewer.open('recite', 0, 'rollout', 2)")
    episode = browser.ask("page.data.viewer.inline['recite-seed0-rollout-0002'][0]")
    board = [[int(cell, 16) for cell in row] for row in episode["start"]]
    for at, call in enumerate(episode["calls"]):
        cells = "/".join("".join(f"{cell:x}" for cell in row) for row in board)
        assert browser.ask("document.querySelector('.viewer canvas').dataset.cells") == cells
        assert texts(browser, "#moment") == [f"reply {at + 1} of {len(episode['calls'])}"]
        said = browser.ask(
            """[...document.querySelectorAll(".token")].map((one) =>
              [one.textContent, one.className, one.dataset.logprob])"""
        )
        assert [float(logprob) for *_, logprob in said] == [milli / 1000 for milli in call["lp"]]
        verdicts = {text: name.split()[1] for text, name, _ in said if "@" in text and len(name.split()) > 1}
        assert verdicts
        assert all(verdict == ("refuted" if text == "top@N" else "verified") for text, verdict in verdicts.items())
        for x, y, value in call["cells"]:
            board[y][x] = value
        if at == 1:
            keep(browser, tmp_path, f"viewer-{size}-light")
        browser.ask("document.getElementById('next').click()")
    assert texts(browser, "#moment") == ["the end"]
    assert browser.ask("document.getElementById('next').disabled")
    assert f"{episode['ret']:+.3f}".replace("-", MINUS) in texts(browser, "#score")[0]
    assert browser.complaints() == []


def test_side_files_open_from_disk(browser: Browser, disk: Disk, tmp_path: Path):
    """A page with all episodes beside it loads them by script tags: no server, and nothing but those files."""
    path = tmp_path / "index.html"
    write_page(read_results(disk.results, disk.store), path, True, lambda text: None)
    browser.look(*SIZES["desktop"], False)
    browser.open(path)
    browser.ask("viewer.open('recite', 0, 'rollout', 2)")
    assert browser.ask("document.getElementById('pick-episode').options.length") == 8
    asked = browser.requests()
    assert asked[0] == path.resolve().as_uri()
    assert len(asked) > 1
    assert all(url.startswith(f"{tmp_path.resolve().as_uri()}/episodes/") for url in asked[1:])
    assert browser.complaints() == []


def test_the_theme_button_redraws(browser: Browser, page: Path):
    browser.look(*SIZES["desktop"], False)
    browser.open(page)
    draw_all(browser)
    browser.ask("document.getElementById('theme').click()")
    browser.ask("Promise.all(plots.all.map((one) => one.wanted))")
    assert browser.ask("document.documentElement.dataset.theme") == "dark"
    assert browser.ask("plots.all[0].canvas.querySelector('svg').style.backgroundColor") == "rgb(20, 23, 27)"
    assert browser.complaints() == []


def test_it_prints(browser: Browser, page: Path):
    """Printing draws what was not yet seen, and hides what a paper cannot do."""
    browser.look(*SIZES["desktop"], False)
    browser.open(page)
    browser.ask("window.dispatchEvent(new Event('beforeprint'))")
    browser.ask("Promise.all(plots.all.map((one) => one.wanted))")
    assert browser.ask("plots.all.every((one) => one.canvas.querySelector('svg, p.about'))")
    browser.send("Emulation.setEmulatedMedia", media="print")
    assert browser.ask("getComputedStyle(document.querySelector('.tools')).display") == "none"
    assert len(browser.send("Page.printToPDF")["data"]) > 50_000
