"""SGLang's command line is one that SGLang knows, and servers end with whoever started them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from internalize.engine.protocol import SamplingParams
from internalize.engine.servers import COMMAND, GUARD, devices, open_servers, sglang_arguments
from internalize.errors import UserError
from internalize.seeds import np_rng
from internalize.study_engine import SglangEngine, for_spec

RECORDED = json.loads((Path(__file__).parent / "schemas/sglang-0.5.23-arguments.json").read_text())
PARSERS = {"int": int, "float": float, "str": str}
DOUBLE = Path(__file__).with_name("launch_double.py")


@pytest.mark.parametrize(
    ("settings", "has", "lacks"),
    [
        ({}, {"--tensor-parallel-size": "1", "--served-model-name": "slime-actor"}, {"--mem-fraction-static"}),
        ({"memory": 0.35, "attention": "fa3"}, {"--mem-fraction-static": "0.35", "--attention-backend": "fa3"}, set()),
        ({"tensor": 4}, {"--tensor-parallel-size": "4", "--context-length": "8192"}, {"--enable-memory-saver"}),
    ],
)
def test_every_argument_is_one_of_sglangs(settings: dict[str, object], has: dict[str, str], lacks: set[str]) -> None:
    spec = for_spec(SglangEngine(type="sglang", **settings))["engine"]  # type: ignore[arg-type]
    words = sglang_arguments(spec, Path("/models/base"), 30000, 64, 8192)
    flags = {
        word: following for word, following in zip(words, [*words[1:], "--"], strict=True) if word.startswith("--")
    }
    for flag, value in flags.items():
        kind = RECORDED["flags"][flag].removeprefix("Optional[").rstrip("]")
        if value.startswith("--"):
            assert kind == "bool", flag
        else:
            PARSERS[kind](value)
    assert has.items() <= flags.items()
    assert not lacks & flags.keys()
    assert flags.get("--attention-backend", "fa3") in RECORDED["attention_backends"]
    taking_turns = sglang_arguments({**spec, "takes_turns": True}, Path("m"), 1, 1, 64)
    assert "--enable-memory-saver" in taking_turns
    assert RECORDED["flags"]["--enable-memory-saver"] == "bool"


def test_servers_share_the_gpus_out() -> None:
    assert devices(1, {"CUDA_VISIBLE_DEVICES": "2,3"}, lambda: 0) == ["2", "3"]
    assert devices(2, {}, lambda: 5) == ["0,1", "2,3"]
    with pytest.raises(UserError, match="too few GPUs"):
        devices(1, {}, lambda: 0)


def test_a_server_is_started_as_sglang_is_and_plays(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv(COMMAND, f"{sys.executable} {DOUBLE}")
    spec = for_spec(SglangEngine(type="sglang", memory=0.3))["engine"]
    model = folders[0]
    with open_servers(spec, model, 4, 64) as engine:
        assert (engine.slots, engine.max_len) == (4, 64)
        prompts = [[5, 6, 7], [8, 9]]
        rngs = [np_rng("servers", i) for i in range(2)]
        played = engine.generate(prompts, ["a", "b"], rngs, SamplingParams(1.0, 6))
        scored = engine.continuations([(p, c.output_ids) for p, c in zip(prompts, played, strict=True)])
        for completion, scores in zip(played, scored, strict=True):
            assert scores == pytest.approx(completion.logprobs, abs=1e-5)
        engine.offload()
        engine.onload()
        engine.update_weights(model, "again")
        rngs = [np_rng("servers", i) for i in range(2)]
        again = engine.generate(prompts, ["a", "b"], rngs, SamplingParams(1.0, 6))
        assert [c.output_ids for c in again] == [c.output_ids for c in played]
        assert {c.weight_version for c in again} == {"again"}


def test_a_guarded_command_ends_with_its_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"import os, pathlib, time; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(60)"
    guard = subprocess.Popen([*GUARD, sys.executable, "-c", code], stdin=subprocess.PIPE)
    while not (pid_file.exists() and pid_file.read_text()):
        time.sleep(0.02)
    child = int(pid_file.read_text())
    assert guard.stdin is not None
    guard.stdin.close()
    assert guard.wait(30) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    with subprocess.Popen([*GUARD, sys.executable, "-c", "raise SystemExit(7)"], stdin=subprocess.PIPE) as other:
        assert other.wait(30) == 7
