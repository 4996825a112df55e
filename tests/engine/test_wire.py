from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from internalize.engine import wire
from internalize.engine.protocol import Completion

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "schemas/sglang-0.5.23.json").read_text())

SAME_NAMES: dict[type[BaseModel], str] = {
    wire.GenerateRequest: "GenerateReqInput",
    wire.Sampling: "SamplingParams",
    wire.UpdateWeightsRequest: "UpdateWeightFromDiskReqInput",
    wire.PauseRequest: "PauseGenerationReqInput",
    wire.ContinueRequest: "ContinueGenerationReqInput",
    wire.AbortRequest: "AbortReq",
}


@pytest.mark.parametrize(("ours", "theirs"), SAME_NAMES.items(), ids=lambda x: getattr(x, "__name__", x))
def test_sglang_knows_every_key_that_we_accept_with_the_same_default(ours: type[BaseModel], theirs: str) -> None:
    known = RECORDED["requests"][theirs]["properties"]
    named = {"TOP_K_ALL": (wire.TOP_K_ALL, -1)}
    for name, field in ours.model_fields.items():
        assert name in known
        if not field.is_required() and field.default_factory is None and known[name].get("default") is not None:
            default = known[name]["default"]
            assert field.default in named.get(default, (default,)), name


def test_every_body_that_we_accept_fits_sglangs_schema() -> None:
    bodies = [
        wire.GenerateRequest(input_ids=[1], rid="a", session_id="s", return_logprob=True),
        wire.UpdateWeightsRequest(model_path="m", weight_version="v1"),
        wire.PauseRequest(),
        wire.ContinueRequest(),
        wire.AbortRequest(rid="a"),
    ]
    for body in bodies:
        jsonschema.validate(body.model_dump(), RECORDED["requests"][SAME_NAMES[type(body)]])
    sampling = wire.Sampling(stop_token_ids=[4], sampling_seed=-5, temperature=0.7)
    jsonschema.validate(sampling.model_dump(), RECORDED["requests"]["SamplingParams"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"input_ids": "text"}, RECORDED["requests"]["GenerateReqInput"])


def test_we_read_only_what_sglang_writes() -> None:
    replies = RECORDED["replies"]
    assert set(wire.MetaInfo.model_fields) <= set(replies["meta_info"])
    assert set(wire.ModelInfo.model_fields) - {"internalize"} <= set(replies["model_info"])
    assert set(wire.UpdateWeightsReply.model_fields) == set(replies["update_weights_from_disk"])
    assert set(wire.VersionSpan.model_fields) == set(replies["weight_version_span"])
    for kind, extra in (("stop", "matched"), ("length", "length"), ("abort", "message")):
        assert {"type", extra} <= set(replies["finish_reason"][kind])


@pytest.mark.parametrize("finish", ["stop", "length", "abort"])
def test_we_write_what_we_read_and_what_sglang_writes(finish: Any) -> None:
    completion = Completion([5, 6, 4], [-0.1, -2.25, -1e-9], finish, "v3", 7)
    reply = wire.reply_of(completion, "r", 9, True)
    assert set(reply["meta_info"]) <= set(RECORDED["replies"]["meta_info"])
    assert set(reply["meta_info"]["finish_reason"]) <= set(RECORDED["replies"]["finish_reason"][finish])
    parsed = wire.GenerateReply.model_validate_json(json.dumps(reply))
    assert parsed.completion() == completion
    assert (parsed.meta_info.prompt_tokens, parsed.meta_info.completion_tokens) == (9, 3)
    assert "output_token_logprobs" not in wire.reply_of(completion, "r", 9, False)["meta_info"]


def _reply(**meta: Any) -> dict[str, Any]:
    base = {
        "id": "r",
        "finish_reason": {"type": "stop", "matched": 4},
        "weight_version": "v1",
        "output_token_logprobs": [[-0.5, 5, None], [-0.25, 4, None]],
    }
    return {"output_ids": [5, 4], "meta_info": base | meta}


def test_a_trimmed_stop_token_is_restored() -> None:
    trimmed = _reply() | {"output_ids": [5]}
    assert wire.GenerateReply.model_validate(trimmed).completion().output_ids == [5, 4]
    whole = _reply(finish_reason={"type": "length", "length": 2}) | {"output_ids": [5]}
    with pytest.raises(ValueError, match="do not match"):
        wire.GenerateReply.model_validate(whole).completion()


@pytest.mark.parametrize(
    ("meta", "match"),
    [
        ({"weight_versions": [{"version": "v0", "start": 0, "end": 1}]}, "mixes weight versions"),
        ({"output_token_logprobs": [[-0.5, 5, None]]}, "do not match"),
        ({"output_token_logprobs": None}, "do not match"),
        ({"output_token_logprobs": [[float("nan"), 5, None], [-1.0, 4, None]]}, "not finite"),
        ({"finish_reason": {"type": "bored"}}, "finish_reason"),
    ],
)
def test_replies_that_contradict_themselves_are_refused(meta: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        wire.GenerateReply.model_validate(_reply(**meta)).completion()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", 0.9),
        ("top_k", 20),
        ("min_p", 0.1),
        ("n", 2),
        ("min_new_tokens", 3),
        ("repetition_penalty", 1.1),
        ("bogus", 1),
        ("regex", "a+"),
        ("temperature", -1.0),
        ("temperature", float("inf")),
        ("max_new_tokens", 0),
        ("sampling_seed", 1 << 63),
    ],
)
def test_sampling_that_the_engine_does_not_do_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        wire.Sampling.model_validate({name: value})


def test_stop_tokens_are_those_of_call_and_model_unless_ignored() -> None:
    sampling = wire.Sampling(stop_token_ids=[9, 4], top_k=wire.TOP_K_ALL)
    assert sampling.params(eos_ids=(4, 2)).stop_ids == (2, 4, 9)
    assert wire.Sampling(stop_token_ids=[9], ignore_eos=True).params(eos_ids=(4,)).stop_ids == ()


@given(st.integers(0, (1 << 64) - 1))
def test_seeds_survive_the_wire(seed: int) -> None:
    signed = wire.to_signed(seed)
    assert -(1 << 63) <= signed < 1 << 63
    assert wire.from_signed(signed) == seed


def test_a_seed_of_more_bits_is_refused() -> None:
    for seed in (-1, 1 << 64):
        with pytest.raises(ValueError, match="64 bits"):
            wire.to_signed(seed)
