"""Gate `engine`: what engines say of fixed prompts, beside the model's own definition.

Invariant: the engine is asked in the way that rollouts ask it (`generate`, so prefill, cache and decoding are in it),
and every token that it gives back is judged by the reference on exactly the ids that it saw. When they disagree and the
engine can be built with fewer layers, the first layer whose output differs is named.

The record's engine computed the wrong thing at tensor parallelism above 1 and the right one at 1; so the gate takes a
list of engines: give it one of each shape that the study serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Completion, Engine, SamplingParams
from internalize.errors import UserError
from internalize.numerics.reference import Reference
from internalize.numerics.verdict import Case, Verdict
from internalize.seeds import np_rng, rng


@dataclass(frozen=True)
class Subject:
    """An engine under test.

    Args:
        name: for the message, such as `local, tp 1`.
        engine: serves the whole model.
        cut: serves the first n layers of the same model, loaded in the same way; None: the layer can't be found.
    """

    name: str
    engine: Engine
    cut: Callable[[int], Engine] | None = None


def engine_gate(
    engines: Sequence[Subject],
    reference: Reference,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens: int,
    tolerance: float,
) -> Verdict:
    """One case an engine: greatest absolute difference of a log-prob, greedy decoding.

    A token that is not the reference's best counts as wrong by as much as the reference prefers its own.
    """
    cases = []
    for subject in engines:
        error, where = _compare(subject.engine, reference, None, prompts, new_tokens)
        layer = f"engine `{subject.name}`"
        if not error <= tolerance:
            layer += f": {_first_wrong_layer(subject, reference, prompts, new_tokens, tolerance)}"
        shape = f"{len(prompts)} prompts of {'+'.join(str(len(p)) for p in prompts)} tokens, {new_tokens} new ones"
        cases.append(Case(layer, shape, error, tolerance, f"worst: {where}", "log-prob"))
    return Verdict("engine", tuple(cases))


def fixed_prompts(vocabulary: int, lengths: Sequence[int]) -> list[list[int]]:
    """Prompts of random ids, the same for every study with this vocabulary."""
    draw = rng("numerics", "prompts", vocabulary)
    return [[draw.randrange(vocabulary) for _ in range(length)] for length in lengths]


def ask(engine: Engine, prompts: Sequence[Sequence[int]], sampling: SamplingParams, key: str) -> list[Completion]:
    """Completions of the prompts, seeded by `key`; the engine's caches are released."""
    sessions = [f"numerics-{key}-{number}" for number in range(len(prompts))]
    found: list[Completion] = []
    for at in range(0, len(prompts), engine.slots):
        part = slice(at, at + engine.slots)
        draws = [np_rng("numerics", key, at + number) for number in range(len(prompts[part]))]
        found += engine.generate(prompts[part], sessions[part], draws, sampling)
        engine.release(sessions[part])
    return found


def local_engine(config: Mapping[str, Any], state: Mapping[str, Tensor], slots: int, max_len: int) -> LocalEngine:
    """An engine of this process that holds `state`."""
    engine = LocalEngine(config, slots=slots, max_len=max_len)
    engine.update_weights(state, "numerics")
    return engine


Build = Callable[[Mapping[str, Any], Mapping[str, Tensor]], Engine]
"""(config.json, HF tensors) -> an engine that serves them."""


def built(name: str, config: Mapping[str, Any], state: Mapping[str, Tensor], build: Build) -> Subject:
    """An engine made by `build`, which also makes it with fewer layers when its outputs are wrong."""
    return Subject(name, build(config, state), cutting(config, lambda: state, build))


def cutting(
    config: Mapping[str, Any], state: Callable[[], Mapping[str, Tensor]], build: Build
) -> Callable[[int], Engine]:
    """Makes the engine of the first n layers of a model whose weights `state` gives."""

    def cut(depth: int) -> Engine:
        gone = tuple(f"model.layers.{layer}." for layer in range(depth, int(config["num_hidden_layers"])))
        kept = {key: tensor for key, tensor in state().items() if not key.startswith(gone)}
        return build({**config, "num_hidden_layers": depth}, kept)

    return cut


def _compare(
    engine: Engine,
    reference: Reference,
    depth: int | None,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
) -> tuple[float, str]:
    said = ask(engine, prompts, SamplingParams(temperature=0.0, max_new_tokens=new_tokens), "forward")
    tables = reference.logprobs([[*p, *c.output_ids] for p, c in zip(prompts, said, strict=True)], depth=depth)
    error, where = -1.0, "nothing was generated"
    for number, (prompt, completion, table) in enumerate(zip(prompts, said, tables, strict=True)):
        for at, (token, logprob) in enumerate(zip(completion.output_ids, completion.logprobs, strict=True)):
            row = table[len(prompt) - 1 + at]
            best = float(row.max())
            gap = max(abs(logprob - float(row[token])), best - float(row[token]))
            if not gap <= error:
                error = gap
                where = f"new token {at} of prompt {number} ({len(prompt)} tokens): {logprob:.5f}, not {best:.5f}"
    return (error, where) if error >= 0 else (float("inf"), where)


def _first_wrong_layer(
    subject: Subject, reference: Reference, prompts: Sequence[Sequence[int]], new_tokens: int, tolerance: float
) -> str:
    """Cut the model after 0, 1, 2, ... layers until engine and reference part."""
    if subject.cut is None:
        return "the layer is not known, this engine cannot be cut"
    for depth in range(reference.layers):
        try:
            engine = subject.cut(depth)
        except UserError:  # no layer at all: not every engine serves such a model
            continue
        if not _compare(engine, reference, depth, prompts, new_tokens)[0] <= tolerance:
            return f"decoder layer {depth - 1}" if depth else "embedding, final norm or head"
    return f"decoder layer {reference.layers - 1}"
