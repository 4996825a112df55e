"""Job logs in the shape of the published record, made from a table that the tests know."""

from __future__ import annotations

import math
import random
from typing import Any

GREEN, RESET = "\x1b[36m", "\x1b[0m"


class Printer:
    """Prints what one job would. Equal seeds print equal lines."""

    def __init__(self, seed: int, job: str, run: str, day: int) -> None:
        self.rng = random.Random(seed)
        self.job, self.run = job, run
        self.second = day * 86_400
        self.lines = [f"+ python3 train.py --save /scratch/e2k/runs/{run}/ckpt --load /scratch/e2k/runs/{run}/ckpt"]

    def rollout(self, number: int, late: dict[str, float], steps: int = 2, finished: bool = True) -> dict[str, Any]:
        """Prints one rollout; what the table must say about it (without timings that the next one prints)."""
        draw = self.rng
        played = {
            "e2k/clear_rate": draw.randint(0, 2) / 32,
            "e2k/shaped_return": round(draw.uniform(-0.5, 0.3), 4),
            "e2k/noop_fraction": math.nan if draw.random() < 0.2 else round(draw.random(), 3),
            "e2k/think_tokens": draw.randint(100, 900),
            "rollout/zero_std/count_0": draw.randint(0, 8),
            "perf/rollout_time": round(draw.uniform(100, 900), 2),
        }
        trained = {"rollout/raw_reward": round(draw.uniform(-1, 1), 5), "rollout/log_probs": -math.inf}
        timed = {"perf/actor_train_time": round(draw.uniform(10, 99), 2), "perf/step_time": round(draw.random(), 3)}
        self._say("RolloutManager", "rollout.py:1193", f"perf {number}", played)
        if not finished:
            return played
        self._say("MegatronTrainRayActor", "data.py:212", f"rollout {number}", trained)
        for step in range(steps):
            values = {"train/loss": round(draw.random(), 6), "train/grad_norm": draw.choice([math.inf, 0.5])}
            self._say("MegatronTrainRayActor", "model.py:77", f"step {number * steps + step}", values)
        self._say("MegatronTrainRayActor", "timer_utils.py:44", f"perf {number}", timed | late)
        if number % 2 == 0:
            shown = {"eval/cd82": round(draw.uniform(-1, 1), 3), "eval/cd82/response_len/mean": 12.5}
            self._say("RolloutManager", "rollout.py:999", f"eval {number}", shown)
            played |= shown
        return played | trained | timed

    def _say(self, actor: str, place: str, what: str, values: dict[str, Any]) -> None:
        self.second += self.rng.randint(1, 90)
        minutes, second = divmod(self.second, 60)
        hours, minute = divmod(minutes, 60)
        day, hour = divmod(hours, 24)
        stamp = f"2026-09-{day:02d} {hour:02d}:{minute:02d}:{second:02d}"
        where = self.rng.choice(["", ", ip=10.253.0.7"])
        text = f"({actor} pid={self.rng.randint(1000, 99999)}{where}) [{stamp}] {place} - {what}: {self._dict(values)}"
        if self.rng.random() < 0.5:
            text = GREEN + text.replace(") [", ")" + RESET + " [", 1)
        if self.rng.random() < 0.3:
            text += f" {GREEN}[repeated 3x across cluster]{RESET}"
        self.lines.append(text)

    def _dict(self, values: dict[str, Any]) -> str:
        return "{" + ", ".join(f"{key!r}: {self._number(value)}" for key, value in values.items()) + "}"

    def _number(self, value: Any) -> str:
        plain = repr(value)
        return self.rng.choice([plain, f"np.float64({plain})"]) if isinstance(value, float) else plain


def noise(rng: random.Random) -> str:
    """A line that a job prints and that says nothing about a metric."""
    return rng.choice(
        [
            "(SGLangEngine pid=77) [2026-09-15 10:00:00 TP0] Decode batch, #running-req: 32, {'a': 1}",
            "Timer actor_train end (elapsed: 12.3s)",
            "(RolloutManager pid=9) perf counters reset",
            "\x1b[33mwarning: {not a metric}\x1b[0m",
            "",
        ]
    )
