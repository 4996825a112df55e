"""The local engine: batched fp32 decoding on the CPU, caches kept across the calls of an episode.

Invariant: what a call returns depends on the weights, its prompt, its generator and the sampling parameters
only; not on the other rows of the batch, not on what is cached (beyond float rounding). The same calls in the
same order are equal bit for bit. To that end each call draws all its uniforms up front, one a token, from its
own generator.

A call copies the cached rows of its sessions into one dense working cache, decodes over it, drops finished
rows when half are done, and copies the rows back: one copy a turn is cheaper than an indexed read a token.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from internalize.checkpoints.digest import tensor_digests
from internalize.engine.protocol import Completion, SamplingParams
from internalize.engine.qwen3 import KeyValues, Qwen3, Qwen3Weights, right_pad
from internalize.engine.slots import Slots
from internalize.errors import UserError

PREFILL_TOKENS, PREFILL_GROUP = 4096, 1024
"""Padded tokens that are prefilled at once; more are prefilled in groups of this many, which stay in the cache (1.4
times as fast, measured) and need less padding."""
SCORE_TOKENS = 2048
"""Padded tokens of one scoring batch: bounds its memory; larger ones fall out of the cache and are slower."""


class LocalEngine:
    """`Engine` over one set of weights in this process. Not thread-safe."""

    def __init__(self, config: Mapping[str, Any], slots: int = 128, max_len: int = 512) -> None:
        """`config`: HF `config.json` of a dense Qwen3. No weights yet: call `update_weights` first."""
        self.config = dict(config)
        self._max_len = max_len
        self._model = Qwen3(config, 2 * max_len)  # padding of a ragged batch may stand behind max_len
        self._store = self._model.new_cache(slots, max_len)
        self._slots = Slots(slots)
        self._weights: Qwen3Weights | None = None
        self._version = ""

    @property
    def slots(self) -> int:
        """Most sequences in one `generate`."""
        return self._slots.count

    @property
    def max_len(self) -> int:
        """Most tokens of one sequence."""
        return self._max_len

    @property
    def weight_version(self) -> str:
        """Version label of the weights that the next call uses."""
        return self._version

    # ---- weights ---
    def update_weights(self, state: Mapping[str, Tensor], version: str) -> None:
        """Replace all weights (HF names) and drop every cache. Raises UserError and keeps the old ones if
        `state` does not fit the configuration."""
        self._weights = Qwen3Weights.from_hf(state, self.config)
        self._version = version
        self.flush()

    def served_digests(self) -> dict[str, str]:
        """HF tensor name -> hash of the tensor that the next call computes with. Raises UserError if there are no
        weights."""
        return tensor_digests(self._ready().to_hf(self.config))

    def offload(self) -> None:
        """Give all memory back, weights and caches; `onload` and `update_weights` before the next call."""
        self._weights, self._version, self._store = None, "", []
        self.flush()

    def onload(self) -> None:
        """Take the caches' memory again."""
        self._store = self._model.new_cache(self.slots, self.max_len)

    def release(self, sessions: Collection[str]) -> None:
        """Forget these sessions' caches; unknown names are ignored."""
        self._slots.release(sessions)

    def flush(self) -> None:
        """Forget every session's cache."""
        self._slots.clear()

    # ---- generation ---
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sessions: Sequence[str],
        rngs: Sequence[np.random.Generator],
        sampling: SamplingParams,
    ) -> list[Completion]:
        """Continue every prompt, all rows in lockstep. Raises UserError on an empty or too long prompt, on
        unknown token ids, and on more rows than slots."""
        weights = self._ready()
        if not len(prompts) == len(sessions) == len(rngs):
            raise UserError(
                "prompts, sessions and generators must be equally many",
                got=f"{len(prompts)}, {len(sessions)}, {len(rngs)}",
            )
        if not prompts:
            return []
        for session, prompt in zip(sessions, prompts, strict=True):
            self._check(prompt, session, self._max_len - 1)
        uniforms = torch.from_numpy(np.stack([g.random(sampling.max_new_tokens) for g in rngs]))
        rows = torch.tensor(self._slots.acquire(sessions))
        cached = [self._slots.reusable(s, p) for s, p in zip(sessions, prompts, strict=True)]
        for session, prompt, n in zip(sessions, prompts, cached, strict=True):
            self._slots.hold(session, list(prompt[:n]))  # true whatever happens below
        with torch.inference_mode():
            batch = _Batch(self, weights, prompts, cached, rows, sampling)
            batch.run(uniforms)
        if not torch.isfinite(batch.logprobs).all():
            self._forget_everything()
            raise UserError("the model's log-probs are not finite", where=f"weights {self._version!r}")
        completions = []
        for i, (session, prompt) in enumerate(zip(sessions, prompts, strict=True)):
            n = int(batch.counts[i])
            ids = batch.tokens[i, :n].tolist()
            stopped = ids[-1] in sampling.stop_ids
            self._slots.hold(session, [*prompt, *ids[:-1]])
            completions.append(
                Completion(
                    output_ids=ids,
                    logprobs=batch.logprobs[i, :n].tolist(),
                    finish="stop" if stopped else "length",
                    weight_version=self._version,
                    cached_tokens=cached[i],
                )
            )
        return completions

    # ---- scoring ---
    def score(self, sequences: Sequence[Sequence[int]], temperature: float = 1.0) -> list[Tensor]:
        """Log-probs of every next token: row t of result i, [len_i, vocab], is the distribution of the token
        that follows `sequences[i][: t + 1]`. So `tokens[t]` (t >= 1) is judged by row t - 1; the last row
        speaks of what comes next. Touches no cache."""
        weights = self._ready()
        for i, sequence in enumerate(sequences):
            self._check(sequence, f"sequence {i}", 2 * self._max_len)
        result: list[Tensor] = [torch.empty(0)] * len(sequences)
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        while order:
            # sorted by length, so the last of a batch is its width
            take = 1
            while take < len(order) and (take + 1) * len(sequences[order[take]]) <= SCORE_TOKENS:
                take += 1
            batch, order = order[:take], order[take:]
            ids, lengths = right_pad([sequences[i] for i in batch])
            with torch.no_grad():
                logprobs = F.log_softmax(self._model.full(weights, ids) / temperature, -1)
            for row, i in enumerate(batch):
                result[i] = logprobs[row, : int(lengths[row])]
        return result

    def token_logprobs(self, sequences: Sequence[Sequence[int]], temperature: float = 1.0) -> list[list[float]]:
        """Log-prob of each token given those before it; entry t speaks of `tokens[t]`. Entry 0 has no
        context: 0.0."""
        out = []
        for sequence, table in zip(sequences, self.score(sequences, temperature), strict=True):
            picked = table[:-1].gather(1, torch.tensor(sequence[1:], dtype=torch.long)[:, None])[:, 0]
            out.append([0.0, *picked.tolist()])
        return out

    def continuations(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        """See `protocol.Scoring`. Pairs that differ in their last token alone are scored once."""
        asked = {(*prefix, *answer[:-1]): None for prefix, answer in pairs}
        tables = dict(zip(asked, self.score([list(sequence) for sequence in asked]), strict=True))
        return [
            [float(tables[*prefix, *answer[:-1]][len(prefix) - 1 + i, token]) for i, token in enumerate(answer)]
            for prefix, answer in pairs
        ]

    def _forget_everything(self) -> None:
        """Also what no session holds: a NaN left in the store would reach later calls through the mask."""
        self.flush()
        self._store = self._model.new_cache(self.slots, self.max_len)

    def _ready(self) -> Qwen3Weights:
        if self._weights is None:
            raise UserError("the engine has no weights yet", fix="call update_weights before generate or score")
        return self._weights

    def _check(self, ids: Sequence[int], where: str, longest: int) -> None:
        if not 1 <= len(ids) <= longest:
            raise UserError(
                "a prompt does not fit the engine",
                where=where,
                expected=f"1 to {longest} tokens",
                got=str(len(ids)),
                fix="raise max_len or end the episode earlier",
            )
        if min(ids) < 0 or max(ids) >= self._model.shape.vocab:
            raise UserError(
                "a prompt holds a token that the model does not have",
                where=where,
                expected=f"ids below {self._model.shape.vocab}",
                got=str(max(ids) if min(ids) >= 0 else min(ids)),
            )


class _Batch:
    """One `generate`: results by row, and the dense working cache of the rows still alive."""

    def __init__(
        self,
        engine: LocalEngine,
        weights: Qwen3Weights,
        prompts: Sequence[Sequence[int]],
        cached: Sequence[int],
        rows: Tensor,
        sampling: SamplingParams,
    ) -> None:
        self.model, self.weights, self.store = engine._model, weights, engine._store
        self.sampling = sampling
        self.rows = rows  # [B] store row of each batch row
        self.start = torch.tensor(cached)  # [B] first position that this call computes
        self.suffix, self.feed = right_pad([p[c:] for p, c in zip(prompts, cached, strict=True)])
        self.length = self.start + self.feed  # [B] prompt tokens
        self.limit = (engine.max_len - self.length).clamp_max(sampling.max_new_tokens)  # [B] most new tokens
        size = (len(prompts), sampling.max_new_tokens)
        self.tokens = torch.zeros(size, dtype=torch.long)
        self.logprobs = torch.zeros(size)
        self.counts = torch.zeros(len(prompts), dtype=torch.long)
        self.stop = torch.tensor(sampling.stop_ids, dtype=torch.long)
        reach = max(int(self.start.max()) + self.suffix.shape[1], int((self.length + self.limit).max()))
        self.work: KeyValues = self.model.new_cache(len(prompts), reach)

    def run(self, uniforms: Tensor) -> None:
        """Prefill, then decode until every row has stopped. `uniforms` [B, max_new_tokens], one a sampled
        token."""
        self._load(int(self.start.max()))
        logits = self._prefill()
        live = torch.arange(len(self.rows))  # batch rows in `work`, in order
        open_ = torch.ones(len(live), dtype=torch.bool)  # which of them still sample
        zero = torch.zeros(len(live), dtype=torch.long)
        for t in range(self.sampling.max_new_tokens):
            token, logprob = sample(logits, uniforms[live, t], self.sampling.temperature)
            at = live[open_]
            self.tokens[at, t], self.logprobs[at, t], self.counts[at] = token[open_], logprob[open_], t + 1
            open_ = open_ & ~torch.isin(token, self.stop) & (self.limit[live] > t + 1)
            alive = int(open_.sum())
            if alive == 0:
                break
            if 2 * alive <= len(live):
                self._save(live, ~open_)
                live, token = live[open_], token[open_]
                self.work = [(k[open_], v[open_]) for k, v in self.work]
                open_ = torch.ones(alive, dtype=torch.bool)
            position = torch.minimum(self.length[live] + t, self.length[live] + self.limit[live] - 1)
            logits = self.model.extend(self.weights, token[:, None], position, zero[: len(live)], self.work)
        self._save(live, torch.ones(len(live), dtype=torch.bool))

    def _prefill(self) -> Tensor:
        """Logits [B, vocab] after each prompt; many long ones in groups of about equal length."""
        if self.suffix.numel() <= PREFILL_TOKENS:
            return self.model.extend(self.weights, self.suffix, self.start, self.feed - 1, self.work)
        logits = torch.empty(len(self.rows), self.model.shape.vocab)
        order = torch.argsort(self.feed, descending=True)
        while len(order):
            width = int(self.feed[order[0]])
            count = max(1, PREFILL_GROUP // width)
            group, order = order[:count], order[count:]
            work = [(keys[group], values[group]) for keys, values in self.work]
            suffix, start, feed = self.suffix[group, :width], self.start[group], self.feed[group]
            logits[group] = self.model.extend(self.weights, suffix, start, feed - 1, work)
            for (keys, values), (new_keys, new_values) in zip(self.work, work, strict=True):
                keys[group], values[group] = new_keys, new_values
        return logits

    def _load(self, reach: int) -> None:
        if reach:
            for (keys, values), (stored_keys, stored_values) in zip(self.work, self.store, strict=True):
                keys[:, :, :reach] = stored_keys[self.rows, :, :reach]
                values[:, :, :reach] = stored_values[self.rows, :, :reach]

    def _save(self, live: Tensor, which: Tensor) -> None:
        """Copy the chosen working rows back to their store rows, as far as any of them was written."""
        at = live[which]
        rows, reach = self.rows[at], int((self.length[at] + self.counts[at]).max()) - 1
        for (keys, values), (stored_keys, stored_values) in zip(self.work, self.store, strict=True):
            stored_keys[rows, :, :reach] = keys[which, :, :reach]
            stored_values[rows, :, :reach] = values[which, :, :reach]


def sample(logits: Tensor, uniform: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """(tokens [B], their log-probs [B]) by inverting the cumulative distribution at `uniform` [B] in [0, 1),
    float64.

    Temperature 0 takes the most likely token and reports its log-prob at temperature 1.
    """
    logprobs = F.log_softmax(logits if temperature == 0.0 else logits / temperature, -1)
    if temperature == 0.0:
        token = logprobs.argmax(-1)
    else:
        cumulative = logprobs.double().exp().cumsum(-1)
        # the last entry, not 1.0, is the total: rounding may leave it a little off
        token = (cumulative <= (uniform * cumulative[:, -1])[:, None]).sum(-1).clamp_max(logits.shape[-1] - 1)
    return token, logprobs.gather(1, token[:, None])[:, 0]
