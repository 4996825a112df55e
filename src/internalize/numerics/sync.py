"""Gate `sync`: after a weight update every engine serves exactly the trainer's tensors.

Invariant: tensors are compared by hash, name by name, as they are served; an engine that kept an old tensor, or one of
a neighbour, is named with the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from internalize.checkpoints.digest import tensor_digests
from internalize.numerics.verdict import Case, Verdict

Hashes = Mapping[str, str]
"""HF tensor name -> its hash (`checkpoints.digest`), as engines report it."""


def sync_gate(trained: Mapping[str, Tensor], served: Mapping[str, Callable[[], Hashes]], dtype: torch.dtype) -> Verdict:
    """One case an engine: tensors that differ from the trainer's; none may.

    Args:
        trained: the trainer's weights, HF names.
        served: engine -> hashes of what it serves now.
        dtype: type that the engines serve.
    """
    want = tensor_digests({name: tensor.to(dtype) for name, tensor in trained.items()})
    cases = []
    for engine, ask in served.items():
        got = ask()
        wrong = [name for name in want if got.get(name) != want[name]]
        surplus = sorted(set(got) - set(want))
        bad = [*wrong, *surplus]
        layer, shape, note = f"weights of engine `{engine}`", f"{len(want)} tensors", f"all {len(want)} hashes equal"
        if bad:
            layer = f"{bad[0]} of engine `{engine}`"
            shape = str(list(trained[bad[0]].shape)) if bad[0] in trained else "a tensor that the trainer lacks"
            have = got.get(bad[0], "nothing")[:12]
            note = f"{len(bad)} of {len(want)} tensors differ; sha256 {have}, trainer {want.get(bad[0], 'none')[:12]}"
        cases.append(Case(layer, shape, float(len(bad)), 0.0, note, "tensors in"))
    return Verdict("sync", tuple(cases))
