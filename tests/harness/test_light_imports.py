from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = (
    "internalize.engine.protocol",
    "internalize.harness.inprocess",
    "internalize.rollout.advantages",
    "internalize.rollout.metrics",
    "internalize.rollout.plans",
    "internalize.rollout.samples",
)


@pytest.mark.parametrize("heavy", ["torch", "transformers", "megatron"])
def test_records_plans_and_play_import_nothing_heavy(heavy: str) -> None:
    code = f"import sys, {', '.join(LIGHT)}; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
