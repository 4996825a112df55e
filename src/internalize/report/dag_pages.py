"""The pictures in docs/dag: for each study file its rules and its arms.

Invariant: lanes are equal bytes for equal studies; a rule graph carries the digest of the graph that it was drawn from,
since the bytes of the drawing depend on the version of matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from internalize.files import digest, write_text
from internalize.report.lanes import lanes_svg
from internalize.study import load_study

FOR_TESTS = frozenset({"mini"})
MARK = "<!-- drawn from {digest} -->\n"


def studies(repository: Path) -> list[Path]:
    """Study files of the repository that readers are shown."""
    return [path for path in sorted((repository / "config").glob("*.yaml")) if path.stem not in FOR_TESTS]


def write_pages(repository: Path, folder: Path) -> list[Path]:
    """Draws every study of the repository into `folder`, with an index; returns what was written."""
    from internalize.report.dag import draw

    made = []
    for path in studies(repository):
        lanes = folder / f"{path.stem}-arms.svg"
        write_text(lanes, lanes_svg(load_study(path)))
        rules = folder / f"{path.stem}-rules.svg"
        dot = rule_graph(repository, path)
        draw(dot, rules, f"Rules of study {path.stem}")
        write_text(rules, rules.read_text() + MARK.format(digest=graph_digest(dot)))
        made += [lanes, rules]
    index = folder / "README.md"
    write_text(index, index_page(studies(repository)))
    return [*made, index]


def rule_graph(repository: Path, study: Path) -> str:
    """Snakemake's graph of the rules of a study, as dot text.

    Raises:
        UserError: Snakemake refuses the study.
    """
    from internalize.report.graphs import ask

    return ask(repository / "Snakefile", "--rulegraph", [f"study={study}"])


def graph_digest(dot: str) -> str:
    """What a graph says: rules, and which reads which, whatever their numbers."""
    from internalize.report.dag import parse

    graph = parse(dot)
    names = {node: " ".join(lines) for node, lines in graph.labels.items()}
    edges = sorted([names[start], names[end]] for start, end in graph.edges)
    return digest({"rules": sorted(names.values()), "edges": edges})


def in_sync(rules: Path, dot: str) -> bool:
    """Was the picture drawn from this graph?"""
    return rules.exists() and rules.read_text().endswith(MARK.format(digest=graph_digest(dot)))


def index_page(paths: Sequence[Path]) -> str:
    """The README of the folder."""
    lines = [
        "# The studies as pictures",
        "",
        "Made by `make docs`; a test keeps them in step with the study files and rules.",
        "`internalize lanes --study my-study.yaml` draws the arms of your own study.",
    ]
    for path in paths:
        lines += [
            "",
            f"## {path.stem}",
            "",
            f"![arms of {path.stem}]({path.stem}-arms.svg)",
            "",
            f"![rules of {path.stem}]({path.stem}-rules.svg)",
        ]
    return "\n".join([*lines, ""])
