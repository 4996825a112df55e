"""Pictures of the workflow."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

from internalize.errors import UserError
from internalize.report import dag

DOT = """digraph snakemake_dag {
    graph[bgcolor=white, margin=0];
    node[shape=box, style=rounded, fontname=sans, fontsize=10, penwidth=2];
    edge[penwidth=2, color=grey];
\t0[label = "report", color = "0.55 0.6 0.85", style="rounded"];
\t1[label = "segment\\narm: none\\nseed: 0", color = "0.44 0.6 0.85", style="rounded"];
\t2[label = "segment\\narm: none\\nseed: 1", color = "0.44 0.6 0.85", style="rounded,dashed"];
\t3[label = "base", color = "0.11 0.6 0.85", style="rounded"];
\t4[label = "gate", color = "0.11 0.6 0.85", style="rounded"];
\t1 -> 0
\t2 -> 0
\t3 -> 0
\t3 -> 4
\t4 -> 1
\t4 -> 2
\t1 -> 1
}
"""


def test_parse():
    graph = dag.parse(DOT)
    assert graph.labels[1] == ["segment", "arm: none", "seed: 0"]
    assert graph.done == frozenset({2})
    assert (3, 4) in graph.edges
    assert len(graph.edges) == 7
    assert dag.summary(DOT) == {"segment": 2, "report": 1, "base": 1, "gate": 1}


def test_layout_runs_from_what_is_made_first():
    plan = dag.layout(dag.parse(DOT))
    assert plan.layers == [[3], [4], [1, 2], [0]]
    # base -> report says nothing that base -> gate -> segment -> report does not; the loop is no edge here
    assert sorted((route[0], route[-1]) for route in plan.routes) == [(1, 0), (2, 0), (3, 4), (4, 1), (4, 2)]


def test_long_edges_bend_around_boxes():
    text = DOT.replace("3 -> 4", "3 -> 4\n\t5 -> 0\n\t5 -> 4").replace(
        "\t1 -> 0",
        '\t5[label = "rows", style="rounded"];\n\t6[label = "late"];\n\t3 -> 6\n\t6 -> 0\n\t1 -> 0',
    )
    plan = dag.layout(dag.parse(text))
    route = next(route for route in plan.routes if (route[0], route[-1]) == (6, 0))
    assert len(route) == 3
    assert route[1] < 0
    assert route[1] in plan.layers[2]


def test_no_crossings_where_none_are_needed():
    nodes = "".join(f'{i}[label = "a{i}"];\n{10 + i}[label = "b{9 - i}"];\n{i} -> {10 + i}\n' for i in range(8))
    first, second = dag.layout(dag.parse(nodes)).layers
    assert [node + 10 for node in first] == second


@pytest.mark.parametrize("text", ["", "digraph {}", '0[label = "a"];\n0 -> 1'])
def test_other_text_is_a_user_error(text):
    with pytest.raises(UserError, match="not a graph of Snakemake"):
        dag.parse(text)


def test_a_cycle_is_a_user_error():
    with pytest.raises(UserError, match="cycle"):
        dag.layout(dag.parse('0[label = "a"];\n1[label = "b"];\n0 -> 1\n1 -> 0'))


def test_svg_and_png(tmp_path):
    for name in ("one.svg", "two.svg", "picture.png"):
        dag.draw(DOT, tmp_path / name, "Rules")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    root = ElementTree.parse(tmp_path / "one.svg").getroot()
    assert root.tag.endswith("svg")
    boxes = [e for e in root.iter() if e.tag.endswith("path") and "fill: #" in e.get("style", "")]
    assert len(boxes) >= 5
    pixels = np.asarray(Image.open(tmp_path / "picture.png").convert("RGB"))
    assert (pixels != 255).any(axis=2).mean() > 0.05
