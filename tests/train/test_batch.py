from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import internalize
from internalize.train.batch import BatchError, TrainSequence

BAD: list[tuple[str, dict[str, Any]]] = [
    ("another length", {"ce_weights": [0.0, 1.0]}),
    ("first token", {"ce_weights": [1.0, 1.0, 1.0]}),
    ("negative", {"ce_weights": [0.0, -1.0, 1.0]}),
    ("not finite", {"ce_weights": [0.0, math.nan, 1.0]}),
    ("not finite", {"ce_weights": [0.0, math.inf, 1.0]}),
    ("without advantages", {"pg_mask": [0, 1, 1]}),
    ("without teacher", {"kl_mask": [0, 1, 1]}),
    ("first token", {"kl_mask": [1, 1, 1], "teacher_logprobs": np.zeros((3, 2))}),
    ("another length", {"kl_mask": [0, 1, 1], "teacher_logprobs": np.zeros((2, 2))}),
    ("advantages", {"pg_mask": [0, 1, 1], "advantages": [0, math.nan, 0], "rollout_logprobs": [0.0] * 3}),
    (
        "rollout_logprobs",
        {"pg_mask": [0, 1, 1], "advantages": [0, 1, 0], "rollout_logprobs": [0, -math.inf, 0]},
    ),
]


@pytest.mark.parametrize(("words", "streams"), BAD)
def test_contradictions_are_refused_with_the_episode_named(words: str, streams: dict[str, Any]) -> None:
    with pytest.raises(BatchError, match=words) as error:
        TrainSequence([1, 2, 3], episode="e7", **streams)
    assert "e7" in str(error.value)


def test_last_trained_is_the_last_token_with_a_gradient() -> None:
    tokens = list(range(6))
    assert TrainSequence(tokens).last_trained == 0
    assert TrainSequence(tokens, ce_weights=[0, 0, 2, 0, 0, 0]).last_trained == 2
    policy = {"rollout_logprobs": [-1.0] * 6, "pg_mask": [0, 0, 1, 1, 0, 1]}
    assert TrainSequence(tokens, advantages=[1.0] * 6, **policy).last_trained == 5
    assert TrainSequence(tokens, advantages=[1, 1, 1, 1, 1, 0], **policy).last_trained == 3
    assert TrainSequence(tokens, advantages=[1, 1, 0, 0, 1, 0], **policy).last_trained == 0
    mixed = TrainSequence(tokens, [0, 0, 2, 0, 0, 0], teacher_logprobs=np.zeros((6, 3)), kl_mask=[0, 1, 0, 0, 1, 0])
    assert mixed.last_trained == 4


def test_building_sequences_and_packing_them_needs_no_torch() -> None:
    code = "import internalize.train.packing, sys; sys.exit('torch' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(internalize.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
