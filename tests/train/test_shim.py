from __future__ import annotations

import pytest
import torch

from internalize.train.shim import as_written, cpu_stand_ins

NAMES = ("current_device", "current_stream", "synchronize", "empty_cache")


def test_it_reads_cuda_as_cpu_inside_and_leaves_no_trace_outside() -> None:
    before = {name: getattr(torch.cuda, name) for name in NAMES}
    with cpu_stand_ins():
        with cpu_stand_ins():
            assert torch.zeros(2, device="cuda").device.type == "cpu"
        assert torch.zeros(2, device=torch.device("cuda", 0)).cuda().device.type == "cpu"
        assert torch.zeros(2).type() == "torch.cuda.FloatTensor"
        assert torch.cuda.current_device() == torch.device("cpu")
        torch.cuda.synchronize()
    assert {name: getattr(torch.cuda, name) for name in NAMES} == before
    assert torch.zeros(2).type() == "torch.FloatTensor"


def test_it_is_undone_after_an_error() -> None:
    before = torch.cuda.current_device
    with pytest.raises(RuntimeError, match="inside"), cpu_stand_ins():
        raise RuntimeError("inside")
    assert torch.cuda.current_device is before


def test_it_does_nothing_where_cuda_is_present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before = {name: getattr(torch.cuda, name) for name in NAMES}
    with cpu_stand_ins():
        assert {name: getattr(torch.cuda, name) for name in NAMES} == before
        assert torch.zeros(2).type() == "torch.FloatTensor"


def test_a_forward_pass_inside_is_not_translated() -> None:
    with cpu_stand_ins(), as_written():
        assert torch.zeros(2).type() == "torch.FloatTensor"
    with cpu_stand_ins():
        assert torch.zeros(2, device="cuda").device.type == "cpu"
