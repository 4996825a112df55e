"""Pictures of the workflow: `snakemake --rulegraph` or `--dag` text in, SVG or PNG out.

Invariant: every node and edge of the text is in the picture, and equal text gives an equal picture.

No graphviz program is needed: networkx (which torch brings along) finds the layers, matplotlib draws.
snakevision, made for the same purpose, draws rules as one column and refuses a rule that depends on itself,
as the segments of an arm do.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import networkx as nx
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve

from internalize.errors import UserError
from internalize.files import write_bytes

matplotlib.use("Agg")

NODE = re.compile(r'^\s*(\d+)\s*\[\s*label\s*=\s*"((?:[^"\\]|\\.)*)"(.*)\];?\s*$')
EDGE = re.compile(r"^\s*(\d+)\s*->\s*(\d+)\s*;?\s*$")
COLOURS = ("#cfe3f2", "#fbe3b8", "#c5e8dc", "#f6d3bd", "#eed7e4", "#d8edf8", "#f7f2c0", "#e4e4e4")
CHAR, LINE, PAD = 0.085, 0.17, 0.16
"""Width of a character, height of a line and margin around the text, inches."""
GAP, COLUMN_GAP, BEND = 0.14, 0.75, 0.02
EDGE_COLOUR = "#8a8a8a"


@dataclass(frozen=True)
class Graph:
    """Node id -> lines of its label; edges from what is made first; nodes whose job need not run (dashed)."""

    labels: dict[int, list[str]]
    edges: list[tuple[int, int]]
    done: frozenset[int]


def parse(dot: str) -> Graph:
    """Reads what `snakemake --dag` or `--rulegraph` prints.

    Raises:
        UserError: the text holds no node, or an edge of an unknown node.
    """
    labels: dict[int, list[str]] = {}
    edges: list[tuple[int, int]] = []
    done = set()
    for line in dot.splitlines():
        if match := NODE.match(line):
            node = int(match[1])
            labels[node] = match[2].replace('\\"', '"').split("\\n")
            if "dashed" in match[3]:
                done.add(node)
        elif match := EDGE.match(line):
            edges.append((int(match[1]), int(match[2])))
    unknown = [edge for edge in edges if edge[0] not in labels or edge[1] not in labels]
    if not labels or unknown:
        raise UserError(
            "not a graph of Snakemake",
            got=f"{len(labels)} nodes, edges of unknown nodes: {unknown[:3]}",
            expected="the output of snakemake --rulegraph or --dag",
        )
    return Graph(labels, edges, frozenset(done))


@dataclass(frozen=True)
class Layout:
    """Layers from left to right, and each edge as the nodes it runs through; nodes below 0 only bend an
    edge."""

    layers: list[list[int]]
    routes: list[list[int]]


def layout(graph: Graph) -> Layout:
    """Nodes by their longest path from a source, each layer in an order with few crossings.

    Edges that a longer way implies are left out, and so is a rule's edge to itself (it is drawn as a loop).

    Raises:
        UserError: the graph has a cycle of two or more nodes.
    """
    net: Any = nx.DiGraph()
    net.add_nodes_from(sorted(graph.labels))
    net.add_edges_from(edge for edge in graph.edges if edge[0] != edge[1])
    if not nx.is_directed_acyclic_graph(net):
        raise UserError("the workflow's graph has a cycle", got=str(nx.find_cycle(net)[:3]))
    order = [sorted(layer, key=lambda node: _natural(graph.labels[node])) for layer in nx.topological_generations(net)]
    depth = {node: at for at, layer in enumerate(order) for node in layer}
    routes = []
    bends = 0
    for start, end in sorted(nx.transitive_reduction(net).edges):
        between = range(depth[start] + 1, depth[end])
        route = [start, *range(-bends - 1, -bends - 1 - len(between), -1), end]
        bends += len(between)
        for at, node in zip(between, route[1:-1], strict=True):
            order[at].append(node)
        routes.append(route)
    _untangle(order, routes, graph)
    return Layout(order, routes)


def _untangle(order: list[list[int]], routes: Sequence[Sequence[int]], graph: Graph) -> None:
    """Sorts every layer by the mean place of its neighbours, forwards and backwards in turn."""
    before: dict[int, list[int]] = {node: [] for layer in order for node in layer}
    after: dict[int, list[int]] = {node: [] for layer in order for node in layer}
    for route in routes:
        for start, end in pairwise(route):
            before[end].append(start)
            after[start].append(end)
    place = {node: at - (len(layer) - 1) / 2 for layer in order for at, node in enumerate(layer)}
    for sweep in range(8):
        side = before if sweep % 2 == 0 else after
        for layer in order if sweep % 2 == 0 else order[::-1]:
            centre = {n: _mean([place[m] for m in side[n]], place[n]) for n in layer}
            layer.sort(key=lambda n: (centre[n], _natural(graph.labels.get(n, [str(-n)]))))
            place |= {node: at - (len(layer) - 1) / 2 for at, node in enumerate(layer)}


def draw(dot: str, path: Path, title: str) -> None:
    """Draw the graph from left to right; the suffix of `path` (.svg, .png) is the format."""
    graph = parse(dot)
    plan = layout(graph)
    boxes, size = _place(graph, plan.layers)
    rules = list(dict.fromkeys(lines[0] for lines in graph.labels.values()))
    colours = {rule: COLOURS[i % len(COLOURS)] for i, rule in enumerate(sorted(rules))}
    with matplotlib.rc_context({"svg.hashsalt": "internalize", "svg.fonttype": "path", "font.size": 8.0}):
        figure = Figure(figsize=(size[0], size[1] + 0.45))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_xlim(0, size[0])
        axes.set_ylim(size[1], -0.45)
        axes.axis("off")
        axes.text(GAP, -0.2, title, fontsize=11, fontweight="bold", va="center")
        for route in plan.routes:
            for start, end in pairwise(route):
                _edge(axes, boxes[start], boxes[end], tip=end >= 0)
        loops = {start for start, end in graph.edges if start == end}
        for node, lines in graph.labels.items():
            _box(axes, boxes[node], lines, colours[lines[0]], node in graph.done, node in loops)
        buffer = io.BytesIO()
        kind = path.suffix[1:]
        figure.savefig(buffer, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {"Software": ""})
    write_bytes(path, buffer.getvalue())


def summary(dot: str) -> dict[str, int]:
    """Jobs by rule, most first."""
    return dict(Counter(lines[0] for lines in parse(dot).labels.values()).most_common())


Box = tuple[float, float, float, float]
"""Left, centre, width, height."""


def _place(graph: Graph, order: Sequence[Sequence[int]]) -> tuple[dict[int, Box], tuple[float, float]]:
    sizes = {n: (PAD * 2 + CHAR * max(map(len, lines)), PAD + LINE * len(lines)) for n, lines in graph.labels.items()}
    bend = (0.0, BEND)
    sizes |= {node: bend for layer in order for node in layer if node < 0}
    heights = [sum(sizes[n][1] + GAP for n in layer) for layer in order]
    total = max(heights) + GAP
    boxes: dict[int, Box] = {}
    left = GAP
    for layer, height in zip(order, heights, strict=True):
        width = max(sizes[n][0] for n in layer)
        # short layers spread out a little, so that edges do not run flat
        gap = GAP + min(0.5, (total - height) / (len(layer) + 1)) if len(layer) > 1 else GAP
        top = (total - sum(sizes[n][1] for n in layer) - gap * (len(layer) - 1)) / 2
        for node in layer:
            boxes[node] = (left, top + sizes[node][1] / 2, width, sizes[node][1])
            top += sizes[node][1] + gap
        left += width + COLUMN_GAP
    return boxes, (left - COLUMN_GAP + GAP, total)


def _edge(axes: Any, start: Box, end: Box, tip: bool) -> None:
    x0, y0, x1, y1 = start[0] + start[2], start[1], end[0] - (0.04 if tip else 0.0), end[1]
    bend = 0.5 * (x1 - x0)
    curve = Curve([(x0, y0), (x0 + bend, y0), (x1 - bend, y1), (x1, y1)], [Curve.MOVETO, *[Curve.CURVE4] * 3])
    axes.add_patch(PathPatch(curve, fc="none", ec=EDGE_COLOUR, lw=0.9, zorder=1))
    if tip:
        ends = (x1 - 0.09, y1), (x1 + 0.04, y1)
        axes.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=7, color=EDGE_COLOUR, lw=0))
    if end[2] and not tip:
        axes.plot([end[0], end[0] + end[2]], [y1, y1], color=EDGE_COLOUR, lw=0.9, zorder=1)


def _box(axes: Any, box: Box, lines: Sequence[str], colour: str, done: bool, loop: bool) -> None:
    left, centre, width, height = box
    style = "round,pad=0,rounding_size=0.06"
    edge = "#5a5a5a"
    patch = FancyBboxPatch(
        (left, centre - height / 2), width, height, boxstyle=style, fc=colour, ec=edge, lw=0.9, zorder=2
    )
    if done:
        patch.set_linestyle((0, (3, 2)))
    axes.add_patch(patch)
    for at, line in enumerate(lines):
        y = centre + (at - (len(lines) - 1) / 2) * LINE
        axes.text(
            left + width / 2,
            y,
            line,
            ha="center",
            va="center",
            zorder=3,
            fontweight="bold" if at == 0 else "normal",
        )
    if loop:
        top, middle = centre - height / 2, left + width / 2
        arc = FancyArrowPatch(
            (middle + 0.18, top),
            (middle - 0.18, top),
            connectionstyle="arc3,rad=1.1",
            arrowstyle="-|>",
            mutation_scale=7,
            shrinkA=0,
            shrinkB=0,
            color=EDGE_COLOUR,
            lw=0.9,
        )
        axes.add_patch(arc)
        axes.text(middle + 0.26, top - 0.1, "each after the one before", fontsize=6, color="#5a5a5a", va="center")


def _mean(values: Sequence[float], otherwise: float) -> float:
    return math.fsum(values) / len(values) if values else otherwise


def _natural(lines: Sequence[str]) -> list[Any]:
    """Sorting key that puts 2 before 10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", " ".join(lines))]
