"""Engine servers for a stage: SGLang, or our own engine behind the same protocol.

Invariant: what is started here has ended when the context ends, and the command line of a server is a pure function of
settings, model and port, so it can be checked where no server runs.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from internalize.engine.client import EngineClient
from internalize.engine.remote import RemoteEngine
from internalize.engine.server import Served, serve
from internalize.errors import UserError
from internalize.ports import free_port

START_SECONDS = 1800.0
"""Loading 54 GB from a parallel file system and compiling kernels for the first time takes minutes."""
GUARD = (sys.executable, "-m", "internalize.engine.guarded")
COMMAND = "INTERNALIZE_SGLANG"
"""Variable with the words that start SGLang, where it is not in this Python (a container, another environment)."""
DEFAULT = f"{shlex.quote(sys.executable)} -m sglang.launch_server"


def sglang_arguments(settings: Mapping[str, Any], model: Path, port: int, slots: int, max_len: int) -> list[str]:
    """The arguments of one SGLang server on a model folder.

    `--random-seed` is not among them: each call brings its own seed. Radix cache and chunked prefill stay SGLang's.
    """
    words = ["--model-path", str(model), "--host", "127.0.0.1", "--port", str(port)]
    words += ["--tensor-parallel-size", str(settings["tensor"]), "--served-model-name", str(settings["served_as"])]
    words += ["--context-length", str(max_len), "--max-running-requests", str(slots)]
    words += ["--skip-server-warmup", "--log-level", "warning"]
    words += ["--enable-memory-saver"] if settings.get("takes_turns") else []
    memory, attention = settings.get("memory"), settings.get("attention")
    words += [] if memory is None else ["--mem-fraction-static", str(memory)]
    words += [] if attention is None else ["--attention-backend", str(attention)]
    return words


def devices(tensor: int, environment: Mapping[str, str], seen: Callable[[], int]) -> list[str]:
    """The CUDA_VISIBLE_DEVICES of each server: as many servers as groups of `tensor` GPUs.

    Args:
        seen: how many GPUs there are, where the environment does not say it.

    Raises:
        UserError: there are too few GPUs for one.
    """
    named = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = named.split(",") if named else [str(number) for number in range(seen())]
    if len(gpus) < tensor:
        raise UserError(
            "too few GPUs for an SGLang server",
            where="engine.tensor",
            expected=f"{tensor}",
            got=str(len(gpus)),
            fix="run the stage on a GPU node, or say `engine: {type: sglang, server: own}` to play on a CPU",
        )
    return [",".join(gpus[at : at + tensor]) for at in range(0, len(gpus) - tensor + 1, tensor)]


@contextmanager
def open_servers(settings: Mapping[str, Any], model: Path, slots: int, max_len: int) -> Iterator[RemoteEngine]:
    """Servers on a model folder, as one engine.

    Args:
        settings: the study's `engine`.
        slots: calls at once, of each server.

    Raises:
        UserError: they do not start.
    """
    with KINDS[settings.get("server", "sglang")](settings, model, slots, max_len) as served:
        urls = served.urls
        with RemoteEngine(lambda: EngineClient(urls), slots=slots * len(urls), max_len=max_len) as engine:
            yield engine


def _own(settings: Mapping[str, Any], model: Path, slots: int, max_len: int) -> Served:
    return serve(model, slots=slots, max_len=max_len)


def _sglang(settings: Mapping[str, Any], model: Path, slots: int, max_len: int) -> Served:
    places = devices(int(settings["tensor"]), os.environ, _gpus)
    command = shlex.split(os.environ.get(COMMAND, DEFAULT))
    urls: list[str] = []
    started: list[subprocess.Popen[bytes]] = []
    try:
        for place in places:
            port = free_port("127.0.0.1")
            words = [*GUARD, *command, *sglang_arguments(settings, model, port, slots, max_len)]
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": place}
            started.append(subprocess.Popen(words, stdin=subprocess.PIPE, env=environment))
            urls.append(f"http://127.0.0.1:{port}")
        served = Served(urls, started)
        served.wait_ready(START_SECONDS)
    except BaseException:
        Served(urls, started).close()
        raise
    return served


KINDS: dict[str, Callable[[Mapping[str, Any], Path, int, int], Served]] = {"sglang": _sglang, "own": _own}
"""`engine.server` -> what starts servers of that kind."""


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()
