"""Swim lanes: everything of the study is in the picture, and docs/dag is in step with study files and rules."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from internalize.report.dag import draw
from internalize.report.dag_pages import MARK, graph_digest, in_sync, index_page, rule_graph, studies
from internalize.report.lanes import COLOURS, PHASES, lanes_svg
from internalize.schedule import phases
from internalize.study import load_study, resolved_arm

SVG = "{http://www.w3.org/2000/svg}"
DOT = 'digraph {\n 0[label = "rows", color = "1"];\n 1[label = "segment", color = "2"];\n 0 -> 1\n}'


def test_every_arm_step_and_source_is_drawn(repository: Path) -> None:
    study = load_study(repository / "config/bundled.yaml")
    picture = ElementTree.fromstring(lanes_svg(study))
    words = {text.text for text in picture.iter(f"{SVG}text")}
    assert set(study.arms) <= words
    assert set(study.rows) | set(study.harvests) <= words
    told = [title.text or "" for title in picture.iter(f"{SVG}title")]
    for name in study.arms:
        for step, phase in enumerate(phases(resolved_arm(study, name))):
            (line,) = [text for text in told if text.startswith(f"{name}, step {step}:")]
            assert PHASES[phase] in line
    fills = [rect.get("fill") for rect in picture.iter(f"{SVG}rect")]
    for phase in ("sft", "rl", "joint"):
        drawn = sum(order.count(phase) for order in (phases(resolved_arm(study, name)) for name in study.arms))
        assert fills.count(COLOURS[phase]) == drawn + 1, "one more in the legend"


def test_moments_cleared_and_cite_weights_are_marked(repository: Path) -> None:
    settings = [
        "arms.arm_c.cite_weight=[1, 8.5]",
        "arms.arm_c.schedule={type: sft_first, steps: 2}",
        "arms.arm_c.steps=3",
    ]
    text = lanes_svg(load_study(repository / "config/mini.yaml", arms="arm_c", set=settings))
    assert ">8.5</text>" in text
    assert text.count("RL rollout, Adam moments cleared before it") == 1
    frozen = lanes_svg(
        load_study(repository / "config/mini.yaml", arms="arm_c", set=[*settings, "rl.frozen_adam=true"])
    )
    assert "cleared" not in frozen


def test_an_arm_that_does_not_run_is_an_outline(repository: Path) -> None:
    study = load_study(repository / "config/mini.yaml", set=["arms.arm_c.status=prepared"])
    assert lanes_svg(study).count("stroke-dasharray") > 2
    assert ">prepared</text>" in lanes_svg(study)
    assert "stroke-dasharray" not in lanes_svg(load_study(repository / "config/mini.yaml"))


def test_names_are_escaped_and_bytes_repeat(repository: Path) -> None:
    study = load_study(repository / "config/mini.yaml")
    assert lanes_svg(study) == lanes_svg(load_study(repository / "config/mini.yaml"))
    odd = study.model_copy(update={"name": "a<b&c"})
    ElementTree.fromstring(lanes_svg(odd))


def test_a_rule_graph_knows_what_it_was_drawn_from(tmp_path: Path) -> None:
    picture = tmp_path / "rules.svg"
    draw(DOT, picture, "Rules")
    assert not in_sync(picture, DOT)
    picture.write_text(picture.read_text() + MARK.format(digest=graph_digest(DOT)))
    assert in_sync(picture, DOT)
    renumbered = DOT.replace("0[", "7[").replace("0 -> 1", "7 -> 1")
    assert in_sync(picture, renumbered)
    assert not in_sync(picture, DOT.replace("0 -> 1", "1 -> 0"))


def test_the_pictures_in_docs_are_those_of_the_study_files(repository: Path) -> None:
    folder = repository / "docs" / "dag"
    stale = "redraw them: make docs"
    assert (folder / "README.md").read_text() == index_page(studies(repository)), stale
    for path in studies(repository):
        assert (folder / f"{path.stem}-arms.svg").read_text() == lanes_svg(load_study(path)), stale


def test_the_rule_graphs_in_docs_are_those_of_the_rules(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in studies(repository):
        picture = repository / "docs" / "dag" / f"{path.stem}-rules.svg"
        assert in_sync(picture, rule_graph(repository, path)), "redraw them: make docs"
