"""Gate `logprobs`: the trainer's log-probs of sampled tokens beside those that the engine reported, at learning rate 0.

Invariant: nothing but the learning rate differs from training: weights go from trainer to engine, the engine samples,
the trainer takes an optimizer step on exactly these ids. At learning rate 0 the weights stay, so the difference must be
rounding in the first round and must not grow in later ones; and it is looked at for a temperature other than 1 too,
where a forgotten division shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from internalize.engine.protocol import Completion, Engine, SamplingParams
from internalize.numerics.engines import Subject, ask
from internalize.numerics.verdict import Case, Verdict

TokenLogprobs = Callable[[Sequence[Sequence[int]], float], list[list[float]]]
"""(sequences, temperature) -> log-prob of each token given those before it; entry t speaks of `tokens[t]`."""


@dataclass(frozen=True)
class Learner:
    """A trainer as this gate sees it.

    Args:
        logprobs: of its current weights.
        still_step: one optimizer step at learning rate 0 on (sequences, prompt lengths, log-probs of the engine,
            temperature).
        publish: gives its weights to the engines.
    """

    logprobs: TokenLogprobs
    still_step: Callable[[Sequence[Sequence[int]], Sequence[int], Sequence[Sequence[float]], float], None]
    publish: Callable[[Sequence[Engine]], None]


def logprobs_gate(
    engines: Sequence[Subject],
    learner: Learner,
    prompts: Sequence[Sequence[int]],
    *,
    temperatures: Sequence[float],
    new_tokens: int,
    rounds: int,
    tolerance: float,
) -> Verdict:
    """One case an engine, temperature and round: mean absolute difference of the sampled tokens' log-probs."""
    cases = []
    for number in range(rounds):
        learner.publish([subject.engine for subject in engines])
        for subject in engines:
            for temperature in temperatures:
                key = f"{subject.name}-{temperature}-{number}"
                said = ask(subject.engine, prompts, SamplingParams(temperature, new_tokens), key)
                sequences = [[*p, *c.output_ids] for p, c in zip(prompts, said, strict=True)]
                case = _case(subject.name, learner, sequences, prompts, said, temperature, number, tolerance)
                cases.append(case)
                lengths = [len(prompt) for prompt in prompts]
                learner.still_step(sequences, lengths, [c.logprobs for c in said], temperature)
    return Verdict("logprobs", tuple(cases))


def _case(
    name: str,
    learner: Learner,
    sequences: Sequence[Sequence[int]],
    prompts: Sequence[Sequence[int]],
    said: Sequence[Completion],
    temperature: float,
    number: int,
    tolerance: float,
) -> Case:
    error, where = _difference(learner.logprobs(sequences, temperature), prompts, said)
    note = f"worst: {where}"
    if not error <= tolerance:
        note += _explanation(learner, sequences, prompts, said, temperature, tolerance)
    layer = f"head: log-probs at temperature {temperature:g}, engine `{name}`"
    tokens = sum(len(completion.output_ids) for completion in said)
    shape = f"{tokens} sampled tokens of {len(prompts)} prompts, round {number + 1} at lr 0"
    return Case(layer, shape, error, tolerance, note, "mean log-prob")


def _difference(
    trained: Sequence[Sequence[float]], prompts: Sequence[Sequence[int]], said: Sequence[Completion]
) -> tuple[float, str]:
    """Mean |trainer - engine| over sampled tokens, and the token with the greatest."""
    gaps = [
        (abs(mine - theirs), number, at, mine, theirs)
        for number, (row, prompt, completion) in enumerate(zip(trained, prompts, said, strict=True))
        for at, (mine, theirs) in enumerate(zip(row[len(prompt) :], completion.logprobs, strict=True))
    ]
    if not gaps:
        return float("inf"), "nothing was sampled"
    worst = max(gaps)
    mean = sum(gap[0] for gap in gaps) / len(gaps)
    _, number, at, mine, theirs = worst
    return mean, f"token {at} of prompt {number}: trainer {mine:.5f}, engine {theirs:.5f}"


def _explanation(
    learner: Learner,
    sequences: Sequence[Sequence[int]],
    prompts: Sequence[Sequence[int]],
    said: Sequence[Completion],
    temperature: float,
    tolerance: float,
) -> str:
    """Another temperature at which the two agree, if there is one: the commonest cause."""
    for other in (1.0, temperature**2, 1.0 / temperature):
        if other != temperature and _difference(learner.logprobs(sequences, other), prompts, said)[0] <= tolerance:
            return f"; the engine's values are those of temperature {other:g}, the rollout asked for {temperature:g}"
    return ""
