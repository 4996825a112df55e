"""Episodes for the page's viewer: what was seen, thought, called and scored, with the board after every reply.

Invariant: an episode of the viewer is made from its record files alone. Its boards are the game's own frames, replayed
from the recorded calls; what the journal says of a call stands beside them unchanged.

In the page an episode is a small dict (keys are short, since a page holds thousands):

    id, level, seed, cleared, valid, ret, parts {component: value}, outcome, start (cells of the first board), calls: [
        {ids, lp: sampled token ids and log-probs in thousandths; kind, word, say; think, where ids are no words;
         obs: the user's turn, need: facts needed now, right: the advised call, cells: [[x, y, value], ...] that the
         call changed on the board: by replay; tool, state, left, changed: as the journal has them;
         res: the tool's answer, where it is not the next call's obs}]
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from internalize.errors import UserError
from internalize.files import read_jsonl
from internalize.games import make_game
from internalize.games.palette import PALETTE
from internalize.games.protocol import Frame, Game
from internalize.harness.episode import CALLS, EPISODES, JOURNAL
from internalize.language.vocabulary import Vocabulary
from internalize.report.data import BASE_STEP, StudyData, eval_folder
from internalize.report.results import Results

Row = dict[str, Any]
LEFT_OUT = {CALLS: re.compile(rb'"prompt_ids":\[[\d,]*\],'), JOURNAL: re.compile(rb'"actions":\[[^\]]*\],')}
"""Most of the text of a call and of a journal row, the whole history and what the game offers: not parsing it saves
time."""
LOOKED_AT = 12
"""How many episodes of a rollout are looked at for one that cleared and one that did not."""


class Shelf(NamedTuple):
    """The episodes of one rollout or eval."""

    arm: str | None
    seed: int
    step: int
    source: str
    folder: Path

    @property
    def key(self) -> str:
        """Its name in the page, and of its side file."""
        step = "base" if self.step == BASE_STEP else f"{self.step:04d}"
        return f"{self.arm or 'base'}-seed{self.seed}-{self.source}-{step}"


def shelves(results: Results, data: StudyData) -> list[Shelf]:
    """Every rollout and eval whose calls are kept, the base's first, then in the order of arms, seeds and steps."""
    found = []
    if data.base.eval:
        found.append(Shelf(None, 0, BASE_STEP, "eval", results.payload("evals.base") / eval_folder(BASE_STEP)))
    for name, arm in data.arms.items():
        for seed, run in sorted(arm.runs.items()):
            for number, step in sorted(run.steps.items()):
                if step.rollout:
                    folder = results.payload(f"step.{name}.{seed}.{number:04d}")
                    found.append(Shelf(name, seed, number, "rollout", folder))
                if step.eval:
                    folder = results.payload(f"evals.{name}.{seed}") / eval_folder(number)
                    found.append(Shelf(name, seed, number, "eval", folder))
    return [shelf for shelf in found if (shelf.folder / CALLS).exists()]


class Narrator:
    """Tells episodes of one study.

    Args:
        results: the study; its knowledge receipt says which game is played.
    """

    def __init__(self, results: Results) -> None:
        self.game = _game(results)
        self._vocabulary = bool(_words(results))
        self._words = self.game.call_words() if self.game is not None else {}

    def sample(self, shelf: Shelf) -> list[Row]:
        """One episode that cleared and one that did not, where the first of the rollout have both."""
        rows = []
        for row in read_jsonl(shelf.folder / EPISODES):
            rows.append(row)
            if len(rows) == LOOKED_AT:
                break
        cleared = [row for row in rows if row["valid"] and row["outcome"]["cleared"]]
        failed = [row for row in rows if not (row["valid"] and row["outcome"]["cleared"])]
        chosen = [*cleared[:1], *failed[:1]]
        return self._tell(shelf, sorted(chosen, key=rows.index))

    def everything(self, shelf: Shelf) -> list[Row]:
        """All episodes."""
        return self._tell(shelf, list(read_jsonl(shelf.folder / EPISODES)))

    def _tell(self, shelf: Shelf, rows: Sequence[Row]) -> list[Row]:
        names = {row["plan"]["id"] for row in rows}
        calls = _of_sessions(shelf.folder / CALLS, names)
        journal = _of_sessions(shelf.folder / JOURNAL, names)
        return [self._episode(row, calls[row["plan"]["id"]], journal[row["plan"]["id"]]) for row in rows]

    def _episode(self, row: Row, calls: Sequence[Row], journal: Sequence[Row]) -> Row:
        plan, outcome = row["plan"], row["outcome"]
        told: Row = {
            "id": plan["id"],
            "level": plan["level"],
            "seed": str(plan["seed"]),  # may be larger than what JavaScript's numbers hold
            "cleared": outcome["cleared"],
            "valid": row["valid"],
            "ret": round(row["returned"], 4),
            "parts": {name: round(value, 4) for name, value in row["components"].items() if value},
            "outcome": outcome,
        }
        replies = [self._reply(call) for call in calls]
        _join_journal(replies, journal)
        if self.game is not None:
            self._replay(self.game, told, replies)
        for reply, later in pairwise(replies):
            if reply["res"] == later.get("obs"):
                del reply["res"]
        return {**told, "calls": replies}

    def _reply(self, call: Row) -> Row:
        told: Row = {
            "ids": call["output_ids"],
            "lp": [round(1000 * value) for value in call["logprobs"]],
            "kind": call["kind"],
            "word": call["call_word"],
            "res": call["observation"],
        }
        if call["say"] is not None:
            told["say"] = call["say"]
        return told if self._vocabulary else {**told, "think": call["think"]}

    def _replay(self, game: Game, told: Row, replies: Sequence[Row]) -> None:
        """Adds boards, observations and advice."""
        state = game.start(told["level"], int(told["seed"]))
        frame = game.frame(state)
        told["start"] = cells(frame)
        for reply in replies:
            if state.done:
                return
            advice = game.advice(state)
            reply |= {"obs": game.observe(state), "need": list(advice.facts), "right": advice.call}
            action = self._words.get(reply["word"] or "") if reply["kind"] == "call" else None
            if action is not None and game.refuse(state, action) is None:
                state = game.apply(state, action)
            elif reply["kind"] != "say":
                state = game.idle(state)
            after = game.frame(state)
            reply["cells"] = changed(frame, after)
            frame = after


def cells(frame: Frame) -> list[str]:
    """A board as one string a row, one hexadecimal digit a cell."""
    return ["".join(f"{value:x}" for value in row) for row in frame]


def changed(before: Frame, after: Frame) -> list[list[int]]:
    """`[x, y, value]` of every cell that differs."""
    return [
        [x, y, new]
        for y, (old_row, new_row) in enumerate(zip(before, after, strict=True))
        if old_row != new_row
        for x, (old, new) in enumerate(zip(old_row, new_row, strict=True))
        if old != new
    ]


def setting(results: Results) -> Row:
    """What the viewer needs to know of the game and the language: palette, captions, words, verdicts of facts."""
    game = _game(results)
    labels = {f"{x},{y}": text for (x, y), text in game.labels().items()} if game is not None else {}
    return {"palette": list(PALETTE), "labels": labels, "words": _words(results), "facts": _verdicts(results)}


def _game(results: Results) -> Game | None:
    """The game of the study; None where its file is not on this machine."""
    try:
        return make_game(**results.receipts["knowledge"].spec["game"])
    except (UserError, ImportError):
        return None


def _words(results: Results) -> list[str]:
    """Token id -> word; empty for a tokenizer that is no list of words."""
    try:
        return list(Vocabulary.load(results.payload("base")).tokens)
    except UserError:
        return []


def _verdicts(results: Results) -> dict[str, Row]:
    """Fact word -> verdict of the knowledge stage, the claim, and whether it is held out of every training row."""
    held = set(results.receipts["knowledge"].facts.get("held_out_facts", []))
    ledger = results.payload("knowledge") / "ledger.jsonl"
    found: dict[str, Row] = {}
    for row in read_jsonl(ledger) if ledger.exists() else ():
        fact = row.get("fact")
        if fact:
            known = {"verdict": row["verdict"]["status"], "claim": row["claim"], "atom": row["id"]}
            found[fact] = {**known, "held": True} if fact in held else known
    return found


def _of_sessions(path: Path, names: Iterable[str]) -> dict[str, list[Row]]:
    """Rows of these episodes, without what the viewer leaves out. Rows lie in the order of episodes, so reading ends
    behind the last of them."""
    found: dict[str, list[Row]] = {name: [] for name in names}
    missing = set(found)
    left_out = LEFT_OUT[path.name]
    head, session = b"", ""
    for line in _lines(path):
        if not head or not line.startswith(head):
            missing.discard(session)
            if not missing:
                break
            head = line[: line.index(b'",') + 1]
            session = json.loads(head[len('{"session":') :])
        if session in found:
            found[session].append(json.loads(left_out.sub(b"", line, count=1).decode()))
    return found


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as handle, zstandard.ZstdDecompressor().stream_reader(handle) as text:
        yield from io.BufferedReader(text, 1 << 16)


def _join_journal(replies: Sequence[Row], journal: Sequence[Row]) -> None:
    """Lays each journal row beside the reply that made it: the game's answer is the reply's observation."""
    waiting = iter(journal)
    for reply in replies:
        if reply["kind"] != "call":
            continue
        row: Mapping[str, Any] | None = next(waiting, None)
        if row is None:
            return
        result = row["result"]
        given = {key: value for key, value in row["arguments"].items() if value is not None}
        reply["tool"] = [row["tool"], given]
        reply["state"], reply["left"] = result["state"], result["actions_left"]
        reply["changed"] = result["cells_changed"]
