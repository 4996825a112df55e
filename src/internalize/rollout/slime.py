"""A step's dump in slime's debug-rollout format, and back.

Invariant: `from_slime(to_slime(dump))` is the dump: tokens, log-probs, masks, advantages and batches, bit for bit; what
slime reads (`Sample.from_dict`) are its own fields alone. What the format cannot say without loss is refused: slime
keeps loss masks as integers and knows no soft labels.

The format (slime 0.3, `--save-debug-rollout-data`): `torch.save({"rollout_id": int, "samples": [Sample.to_dict()]})`;
`loss_mask` and `rollout_log_probs` speak of the last `response_length` tokens, `rollout_id` of a sample numbers the
execution that it is part of, `group_index` the executions whose rewards are compared. Ours lies in
`metadata["internalize"]`, which slime carries along.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from internalize.errors import CorruptPayload, MissingPayload, UserError
from internalize.files import write_bytes
from internalize.rollout.dump import Dump
from internalize.train.batch import TrainSequence

OURS = "internalize"
Payload = dict[str, Any]


def to_slime(dump: Dump, returns: Mapping[str, float], groups: Mapping[str, int]) -> Payload:
    """The dump as slime's payload.

    Args:
        returns: episode -> shaped return, the `reward` of its samples.
        groups: episode -> group.

    Raises:
        UserError: a sequence has soft labels, several kinds of supervision, or a weight that is no whole number; or an
            episode has no return.
    """
    executions: dict[str, int] = {}
    samples: list[dict[str, Any]] = []
    for number, batch in enumerate(dump.batches):
        for sequence in batch:
            key = sequence.episode or f"sequence {len(samples)}"
            execution = executions.setdefault(key, len(executions))
            samples.append(_sample(sequence, number, len(samples), execution, returns, groups))
    meta = {OURS: {"batches": len(dump.batches), "meta": dict(dump.meta)}}
    return {"rollout_id": dump.rollout_id, "samples": samples, "metadata": meta}


def from_slime(payload: Mapping[str, Any], reward_key: str | None = None, executions_a_step: int | None = None) -> Dump:
    """A dump from slime's payload, written by slime or by `to_slime`.

    Samples that are not ours get the Dr.GRPO advantage: the reward of their execution minus the mean over the
    executions of their group. Samples without rollout log-probs are SFT rows; their mask is the weight.

    Args:
        reward_key: which reward, where slime stored a dict.
        executions_a_step: slime's global batch size; None puts all samples that are not ours in one batch. As in
            slime, executions that do not fill a step are dropped.

    Raises:
        UserError: a sample contradicts itself or misses its reward; it is named.
    """
    samples = payload["samples"]
    ours = payload.get("metadata", {}).get(OURS, {})
    rewards = {i: _reward(sample, i, reward_key) for i, sample in enumerate(samples) if _policy(sample)}
    baseline = _baselines(samples, rewards)
    batches: list[list[TrainSequence]] = [[] for _ in range(ours.get("batches", 0))]
    for i, (sample, number) in enumerate(zip(samples, _batch_numbers(samples, executions_a_step), strict=True)):
        if number is None:
            continue
        batches += [[] for _ in range(number + 1 - len(batches))]
        advantage = rewards[i] - baseline[i] if i in rewards else 0.0
        batches[number].append(_sequence(sample, i, advantage))
    return Dump(int(payload["rollout_id"]), batches, dict(ours.get("meta", {})))


def save_slime(path: Path, payload: Payload) -> None:
    """Writes a payload atomically."""
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    write_bytes(path, buffer.getvalue())


def load_slime(path: Path) -> Payload:
    """Reads a payload; nothing in the file is run.

    Raises:
        MissingPayload: there is no such file.
        CorruptPayload: it is none of slime's dumps, or holds objects besides plain values and tensors.
    """
    if not path.exists():
        raise MissingPayload("no such rollout dump", where=str(path))
    try:
        payload = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(payload, dict) or not isinstance(payload["samples"], list):
            raise ValueError("no `samples`")
        int(payload["rollout_id"])
    except Exception as error:  # torch raises half a dozen types for a damaged archive
        raise CorruptPayload(
            "not a debug-rollout dump",
            where=str(path),
            expected='{"rollout_id": number, "samples": [...]} of plain values',
            got=str(error).splitlines()[0],
            fix="eval dumps and dumps with multimodal inputs are not read",
        ) from error
    return payload


def _sample(
    sequence: TrainSequence,
    batch: int,
    index: int,
    execution: int,
    returns: Mapping[str, float],
    groups: Mapping[str, int],
) -> dict[str, Any]:
    mask = _mask(sequence)
    policy = sequence.pg_mask is not None
    if policy and sequence.episode not in returns:
        raise UserError("an episode has no return", got=sequence.episode, expected="a row of episodes.jsonl")
    first = next((t for t, weight in enumerate(mask) if weight), 1)
    logprobs = sequence.rollout_logprobs if policy else None
    return {
        "group_index": groups.get(sequence.episode) if policy else None,
        "index": index,
        "rollout_id": execution,
        "prompt": "",
        "tokens": list(sequence.tokens),
        "response": "",
        "response_length": len(mask) - first,
        "label": None,
        "reward": returns[sequence.episode] if policy else None,
        "loss_mask": mask[first:],
        "weight_versions": [],
        "rollout_log_probs": logprobs[first:] if logprobs is not None else None,
        "remove_sample": False,
        "status": "completed",
        "metadata": {
            OURS: {
                "batch": batch,
                "episode": sequence.episode,
                "advantages": sequence.advantages,
                # log-probs of prompt tokens are 0 with us; kept only where they are not
                "before": logprobs[:first] if logprobs is not None and any(logprobs[:first]) else None,
            }
        },
        "train_metadata": None,
        "session_id": sequence.episode or None,
        "non_generation_time": 0.0,
        "spec_info": {},
        "prefix_cache_info": {},
    }


def _mask(sequence: TrainSequence) -> list[int]:
    where = f"sequence of `{sequence.episode}`"
    if sequence.kl_mask is not None:
        raise UserError("slime's format has no soft labels", where=where, fix="export a step that has none")
    if (sequence.pg_mask is None) == (sequence.ce_weights is None):
        raise UserError(
            "slime's format has one mask a sample", where=where, expected="policy tokens or weighted tokens, not both"
        )
    if sequence.pg_mask is not None:
        return list(sequence.pg_mask)
    weights = sequence.ce_weights or []
    broken = next((weight for weight in weights if weight != int(weight)), None)
    if broken is not None:
        raise UserError(
            "slime keeps loss masks as whole numbers and would cut this weight",
            where=where,
            got=str(broken),
            fix="scale the weights of the row set to whole numbers",
        )
    return [int(weight) for weight in weights]


def _policy(sample: Mapping[str, Any]) -> bool:
    return sample.get("rollout_log_probs") is not None


def _reward(sample: Mapping[str, Any], index: int, key: str | None) -> float:
    reward = sample.get("reward")
    if isinstance(reward, Mapping):
        reward = reward.get(key) if key is not None else None
    if not isinstance(reward, int | float):
        raise UserError(
            "a sample has no reward",
            where=f"samples[{index}].reward",
            expected="a number" if key is None else f"a number under `{key}`",
            got=repr(sample.get("reward")),
            fix="name the reward with --reward-key where slime stored several",
        )
    return float(reward)


def _baselines(samples: Sequence[Mapping[str, Any]], rewards: Mapping[int, float]) -> dict[int, float]:
    """Sample -> mean reward of its group, each execution counted once however many samples it fans out into."""
    executions: dict[Any, dict[Any, float]] = {}
    for i, reward in rewards.items():
        group = executions.setdefault(samples[i].get("group_index"), {})
        execution = _execution(samples[i], i)
        if group.setdefault(execution, reward) != reward:
            raise UserError(
                "the samples of one execution have different rewards",
                where=f"samples[{i}]",
                expected=f"{group[execution]}, as the first sample of rollout_id {execution}",
                got=str(reward),
            )
    means = {group: sum(found.values()) / len(found) for group, found in executions.items()}
    return {i: means[samples[i].get("group_index")] for i in rewards}


def _execution(sample: Mapping[str, Any], index: int) -> Any:
    return sample["rollout_id"] if sample.get("rollout_id") is not None else ("sample", index)


def _batch_numbers(samples: Sequence[Mapping[str, Any]], size: int | None) -> list[int | None]:
    """Optimizer batch of each sample; None: dropped."""
    order: dict[Any, int] = {}
    numbers: list[int | None] = []
    for i, sample in enumerate(samples):
        ours = (sample.get("metadata") or {}).get(OURS)
        if ours is not None:
            numbers.append(int(ours["batch"]))
            continue
        at = order.setdefault(_execution(sample, i), len(order))
        numbers.append(at // size if size is not None else 0)
    if size is None or not order:
        return numbers
    full = len(order) // size
    return [number if number is None or number < full else None for number in numbers]


def _sequence(sample: Mapping[str, Any], index: int, advantage: float) -> TrainSequence:
    tokens = list(sample["tokens"])
    length = int(sample["response_length"])
    first = len(tokens) - length
    given = sample.get("loss_mask")
    mask = list(given) if given is not None else [1] * length
    logprobs = sample.get("rollout_log_probs")
    for name, stream in (("loss_mask", mask), ("rollout_log_probs", logprobs)):
        if (stream is not None and len(stream) != length) or first < 0:
            raise UserError(
                f"{name} has another length than the response",
                where=f"samples[{index}]",
                expected=f"{length} entries of {len(tokens)} tokens",
                got=str(len(stream or [])),
            )
    if sample.get("remove_sample"):
        mask = [0] * length
    ours = (sample.get("metadata") or {}).get(OURS, {})
    episode = str(ours.get("episode", sample.get("session_id") or f"rollout {_execution(sample, index)}"))
    if logprobs is None:
        return TrainSequence(tokens, ce_weights=[0.0] * first + [float(weight) for weight in mask], episode=episode)
    whole = [0] * first + mask
    advantages = ours.get("advantages")
    return TrainSequence(
        tokens,
        advantages=list(advantages) if advantages is not None else [advantage * m for m in whole],
        rollout_logprobs=list(ours.get("before") or [0.0] * first) + list(logprobs),
        pg_mask=whole,
        episode=episode,
    )
