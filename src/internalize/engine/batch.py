"""The rows that are being decoded together; calls join and leave between two decode steps.

Invariant: as in `engine.local`: what a call returns depends on the weights, its prompt, its seed and its
sampling parameters only, not on who shares its batch, nor on when it joined (beyond float rounding). So
each call draws its uniforms up front from its own seed, and a joining call is prefilled apart from the rows
that already decode.

Rows lie densely in a working cache: a joining call takes the next free row and copies its session's cached
prefix there, a leaving one copies its row back and the last row moves into the hole.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from internalize.engine.local import LocalEngine, sample
from internalize.engine.protocol import Completion, FinishReason, SamplingParams
from internalize.engine.qwen3 import KeyValues, right_pad
from internalize.errors import UserError

PREFILL_TOKENS = 4096
"""Padded tokens of one prefill: bounds its memory and how long running rows wait for it."""


@dataclass(eq=False)
class Call:
    """One request; its future gets the `Completion`."""

    rid: str
    prompt: list[int]
    sampling: SamplingParams
    seed: int
    session: str = ""
    """Conversation whose cache it extends; empty: the scheduler finds one."""
    future: Future[Completion] = field(default_factory=Future)


class Row:
    """A call that is being decoded."""

    def __init__(self, call: Call, store_row: int, cached: int, version: str, max_len: int) -> None:
        self.call, self.store_row, self.cached, self.version = call, store_row, cached, version
        self.limit = min(call.sampling.max_new_tokens, max_len - len(call.prompt))
        # PCG64 gives the same first numbers however many are asked for: max_len does not change the draw
        self.uniforms: list[float] = np.random.Generator(np.random.PCG64(call.seed)).random(self.limit).tolist()
        self.ids: list[int] = []
        self.logprobs: list[float] = []

    @property
    def finish(self) -> FinishReason | None:
        """None while it runs."""
        if self.ids and self.ids[-1] in self.call.sampling.stop_ids:
            return "stop"
        return "length" if len(self.ids) >= self.limit else None

    @property
    def position(self) -> int:
        """Where the next token to be fed (the last one sampled) stands."""
        return len(self.call.prompt) + len(self.ids) - 1

    def completion(self, finish: FinishReason) -> Completion:
        return Completion(self.ids, self.logprobs, finish, self.version, self.cached)


class RunningBatch:
    """The rows over one engine's weights and session caches. Not thread-safe."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.rows: list[Row] = []
        self._work: KeyValues = []

    def admit(self, calls: Sequence[Call]) -> list[tuple[Call, Completion]]:
        """Prefill these calls and sample their first token; returns those that are over already. Sessions
        must be distinct, also from the running ones, and rows enough.

        Raises:
            UserError: the model's output is not finite; all rows are lost.
        """
        if not calls:
            return []
        engine, slots = self.engine, self.engine._slots
        if not self._work:
            self._work = engine._model.new_cache(engine.slots, engine.max_len)
        # the running sessions are named too, so that none of them is evicted
        held = slots.acquire([r.call.session for r in self.rows] + [c.session for c in calls])
        new = []
        for call, store_row in zip(calls, held[len(self.rows) :], strict=True):
            cached = slots.reusable(call.session, call.prompt)
            slots.hold(call.session, call.prompt[:cached])  # true whatever happens below
            new.append(Row(call, store_row, cached, engine.weight_version, engine.max_len))
        for group in self._groups(new):
            self._prefill(group)
        return self._sweep()

    def step(self) -> list[tuple[Call, Completion]]:
        """One more token for every row; returns the calls that are over. Raises as `admit`."""
        rows = self.rows
        if not rows:
            return []
        ids = torch.tensor([[r.ids[-1]] for r in rows])
        positions = torch.tensor([r.position for r in rows])
        logits = self._extend(ids, positions, torch.zeros(len(rows), dtype=torch.long), 0, len(rows))
        self._take(logits, rows)
        return self._sweep()

    def abort(self, rid: str | None) -> list[tuple[Call, Completion]]:
        """End the call of that name, or all, with the tokens sampled so far."""
        # from the last row down: the row that moves into a hole has been looked at
        downwards = reversed(range(len(self.rows)))
        return [self._leave(i) for i in downwards if rid in (None, self.rows[i].call.rid)]

    def drop(self) -> list[Call]:
        """Forget all rows without saving them (after an error)."""
        calls = [row.call for row in self.rows]
        self.rows, self._work = [], []
        return calls

    # ---- parts ---
    def _groups(self, new: list[Row]) -> list[list[Row]]:
        """Rows of about equally long suffixes, so that padding is short, ends before `max_len` and a group
        stays below `PREFILL_TOKENS`."""
        groups: list[list[Row]] = []
        start = 0
        for row in sorted(new, key=lambda r: len(r.call.prompt) - r.cached):
            width = len(row.call.prompt) - row.cached  # the group's widest so far
            start = max(start, row.cached)
            group = groups[-1] if groups else []
            if group and start + width <= self.engine.max_len and (len(group) + 1) * width <= PREFILL_TOKENS:
                group.append(row)
            else:
                groups.append([row])
                start = row.cached
        return groups

    def _prefill(self, group: list[Row]) -> None:
        first, last = len(self.rows), len(self.rows) + len(group)
        reach = max(r.cached for r in group)
        if reach:
            store_rows = torch.tensor([r.store_row for r in group])
            for work, store in zip(self._work, self.engine._store, strict=True):
                for to, source in zip(work, store, strict=True):
                    to[first:last, :, :reach] = source[store_rows, :, :reach]
        ids, lengths = right_pad([r.call.prompt[r.cached :] for r in group])
        start = torch.tensor([r.cached for r in group])
        logits = self._extend(ids, start, lengths - 1, first, last)
        self.rows += group
        self._take(logits, group)

    def _extend(self, ids: Tensor, start: Tensor, at: Tensor, first: int, last: int) -> Tensor:
        cache = [(keys[first:last], values[first:last]) for keys, values in self._work]
        with torch.inference_mode():
            return self.engine._model.extend(self.engine._ready(), ids, start, at, cache)

    def _take(self, logits: Tensor, rows: Sequence[Row]) -> None:
        """Sample one token a row, `logits` [len(rows), vocab]."""
        temperatures = [r.call.sampling.temperature for r in rows]
        uniforms = torch.tensor([r.uniforms[len(r.ids)] for r in rows], dtype=torch.float64)
        for temperature in dict.fromkeys(temperatures):
            here = [i for i, t in enumerate(temperatures) if t == temperature]
            pick = slice(None) if len(here) == len(rows) else here
            tokens, logprobs = sample(logits[pick], uniforms[pick], temperature)
            if not torch.isfinite(logprobs).all():
                self.engine._forget_everything()
                raise UserError("the model's log-probs are not finite", where=f"weights {self.engine.weight_version!r}")
            for i, token, logprob in zip(here, tokens.tolist(), logprobs.tolist(), strict=True):
                rows[i].ids.append(token)
                rows[i].logprobs.append(logprob)

    def _sweep(self) -> list[tuple[Call, Completion]]:
        downwards = reversed(range(len(self.rows)))
        return [self._leave(i) for i in downwards if self.rows[i].finish is not None]

    def _leave(self, index: int) -> tuple[Call, Completion]:
        """Save the row to its session, and let the last row take its place."""
        row = self.rows[index]
        begin, end = row.cached, row.position  # nothing was fed after the last sampled token
        for work, store in zip(self._work, self.engine._store, strict=True):
            for source, to in zip(work, store, strict=True):
                to[row.store_row, :, begin:end] = source[index, :, begin:end]
        self.engine._slots.hold(row.call.session, [*row.call.prompt, *row.ids[:-1]])
        last = self.rows.pop()
        if last is not row:
            self.rows[index] = last
            for pair in self._work:
                for tensor in pair:
                    tensor[index, :, : last.position] = tensor[len(self.rows), :, : last.position]
        return row.call, row.completion(row.finish or "abort")
