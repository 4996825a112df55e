"""From the `--input` words of a rule to named receipts.

Invariant: a rule names every receipt that its job reads, by what it is and not by where it lies. There
are five forms, because a shell line cannot loop:

    NAME=PATH             one input
    NAME=                 none (an optional input that this job lacks)
    NAME.=PATH PATH ...   one input a path, named by it: `rows.=.../rows/recite.json` is `rows.recite`
    NAME@STEP=PATH        one step of the segment whose last receipt this is
    NAME*=PATH ...        every step of the segments whose last receipts these are: `step*=` gives `step0003`,
                          `step.*=` gives `step.ARM.SEED.0003`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from internalize.errors import MissingPayload, UserError

RECEIPTS = "results/receipts"
SEGMENT = re.compile(r"(?P<arm>[^/]+)/seed(?P<seed>\d+)/steps(?P<first>\d{4})-(?P<last>\d{4})/step\d{4}\.json$")
"""Where the receipts of a segment lie: a folder of its own, so that no other segment ever overwrites them."""


def segment_path(arm: str, seed: int | str, first: int, last: int) -> str:
    """Where the receipt of a segment's last step lies; those of its other steps lie beside it."""
    return f"{RECEIPTS}/arms/{arm}/seed{seed}/steps{first:04d}-{last:04d}/step{last:04d}.json"


def named_inputs(words: Sequence[str]) -> dict[str, Path]:
    """The inputs that the words name.

    Raises:
        UserError: a word has none of the five forms, or two inputs get one name.
        MissingPayload: the receipt of a step is gone.
    """
    inputs: dict[str, Path] = {}
    for word in words:
        name, separator, paths = word.partition("=")
        if not separator or not name.strip(".*@"):
            raise UserError("malformed --input", got=word, expected="NAME=RECEIPT")
        for label, path in _expand(name, paths.split()):
            if label in inputs:
                raise UserError(f"two inputs are called `{label}`", got=f"{inputs[label]} and {path}")
            inputs[label] = path
    return inputs


def _expand(name: str, paths: list[str]) -> Iterator[tuple[str, Path]]:
    if "@" in name:
        name, _, step = name.partition("@")
        wanted = f"{int(step):04d}" if step.isdecimal() else step
        steps = dict(found for path in paths for found in _steps("", Path(path)))
        if wanted not in steps:
            raise UserError(
                "no such step in the segment", got=f"{name}@{step}", expected=", ".join(steps) or "a segment"
            )
        yield name, steps[wanted]
    elif name.endswith("*"):
        for path in paths:
            yield from _steps(name[:-1], Path(path))
    elif name.endswith("."):
        for path in paths:
            below = path.rpartition("receipts/")[2].removesuffix(".json").split("/")[1:]
            yield name + _dotted(below), Path(path)
    elif len(paths) > 1:
        raise UserError(f"`{name}` is one input", got=" ".join(paths), expected=f"{name}=RECEIPT")
    else:
        yield from ((name, Path(path)) for path in paths)


def _steps(name: str, path: Path) -> Iterator[tuple[str, Path]]:
    match = SEGMENT.search(path.as_posix())
    if match is None:
        raise UserError("not the receipt of a segment", got=str(path), expected="ARM/seedN/stepsA-B/stepB.json")
    prefix = f"{name}{match['arm']}.{match['seed']}." if name.endswith(".") else name
    for step in range(int(match["first"]), int(match["last"]) + 1):
        receipt = path.with_name(f"step{step:04d}.json")
        if not receipt.exists():
            raise MissingPayload(
                f"the receipt of step {step} is gone",
                where=str(receipt),
                fix=f"delete {path} and run the study again: the store makes both anew without computing",
            )
        yield f"{prefix}{step:04d}", receipt


def input_name(path: str) -> str:
    """The name that rules give to the receipt at `path`: `base`, `rows.recite`, `harvest.own`, `evals.none.0`, or
    `step` for one of a segment."""
    below = path.rpartition("receipts/")[2].removesuffix(".json").split("/")
    if below[0] == "arms":
        return "step"
    return _dotted(below)


def _dotted(parts: Sequence[str]) -> str:
    return ".".join(part.removeprefix("seed") for part in parts)
