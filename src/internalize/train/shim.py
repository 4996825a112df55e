"""CPU stand-ins for the CUDA calls that megatron-core makes unconditionally.

Invariant: with a CUDA device present nothing here has any effect; without one, everything is undone on
leaving ``cpu_stand_ins``, so torch looks untouched to the rest of the process.

Two kinds of call are answered: functions of ``torch.cuda`` (current_device, synchronize, ...) are replaced,
and literals (``device="cuda"``, ``.cuda()``, ``tensor.type() == "torch.cuda.FloatTensor"``) are translated by
a torch function mode, which costs about 2 microseconds a torch call. Build, train, save and load run inside;
other code (an engine, transformers) must not, because ``.type()`` lies inside.

The list of call sites, by file and line of megatron-core 0.16.1, comes from tracing them; bump the pin only
with the CPU tests green.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from internalize.train.mcore import initialize_rng_tracker, tensor_parallel_random

_depth = 0


@contextmanager
def cpu_stand_ins() -> Iterator[None]:
    """Runs a block of Megatron code on a machine without CUDA; does nothing where CUDA is available.
    Re-entrant.
    """
    global _depth
    if _depth or torch.cuda.is_available():
        yield
        return
    saved = {place: getattr(*place) for place in _REPLACEMENTS}
    _depth += 1
    try:
        for place, stand_in in _REPLACEMENTS.items():
            setattr(*place, stand_in)
        with _CudaLiterals():
            yield
    finally:
        _depth -= 1
        for place, original in saved.items():
            setattr(*place, original)


def as_written() -> AbstractContextManager[None]:
    """Runs a block inside ``cpu_stand_ins`` without translating literals, for code that holds none.

    The model's forward pass is such code and makes most of a step's torch calls (measured: 4 % of a step).
    """
    context: AbstractContextManager[None] = torch._C.DisableTorchFunction()
    return context


def use_cpu_rng_tracker() -> None:
    """Switches Megatron's RNG tracker to its no-op form (a public switch), which needs no CUDA generator and no seed
    of its own.

    Right only while every dropout is 0, which ``model.transformer_config`` guarantees.
    """
    initialize_rng_tracker(inference_rng_tracker=True)


class _Stream:
    """A CUDA stream that has nothing to wait for."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _nothing


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _cpu_device() -> torch.device:
    return torch.device("cpu")


def _stream(*args: Any, **kwargs: Any) -> _Stream:
    return _Stream()


def _no_state(*args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8)


_REPLACEMENTS: dict[tuple[Any, str], Callable[..., Any]] = {
    (torch.cuda, "current_device"): _cpu_device,
    (torch.cuda, "current_stream"): _stream,
    (torch.cuda, "synchronize"): _nothing,
    (torch.cuda, "empty_cache"): _nothing,
    # recomputation keeps and restores the CUDA generator around the second forward pass
    (tensor_parallel_random, "_get_cuda_rng_state"): _no_state,
    (tensor_parallel_random, "_set_cuda_rng_state"): _nothing,
}


class _CudaLiterals(TorchFunctionMode):
    """Reads ``cuda`` as ``cpu`` in the arguments of torch calls."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if kwargs:
            device = kwargs.get("device")
            if device is not None and str(device).startswith("cuda"):
                kwargs = {**kwargs, "device": "cpu"}
            return func(*args, **kwargs)
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1:
            return func(*args).replace("torch.", "torch.cuda.", 1)
        return func(*args)
