"""A runtime in one process: what is loaded when, and how it is chosen from the study's plain settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from internalize.checkpoints.digest import tensor_digests
from internalize.engine.folder import ModelFolder
from internalize.engine.local import LocalEngine
from internalize.errors import UserError
from internalize.runtime.runtimes import around, trainer_settings
from internalize.study_parallel import Parallel
from internalize.train.trainer import ParallelSpec


def test_settings_come_back_from_their_plain_form_and_reach_the_trainer() -> None:
    given = Parallel(tensor=2, pipeline=3, recompute="full", micro_batch_tokens=99, runtime="ray", precision="bf16")
    assert Parallel(**given.plain()) == given
    assert Parallel(**Parallel(tensor=2).plain()) == Parallel(tensor=2)
    settings = trainer_settings(given, {"vocab_size": 7}, 5)
    assert settings.parallel == ParallelSpec(tp=2, pp=3, recompute=True, precision="bf16")
    assert (settings.seed, settings.max_tokens, settings.model_config) == (5, 99, {"vocab_size": 7})


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_engine_has_no_weights_before_the_first_sync_and_the_trainers_after_it(
    model: Path, tmp_path: Path, precision: str
) -> None:
    folder = ModelFolder(model)
    parallel = Parallel(precision=precision)
    engine = LocalEngine(folder.config(), slots=1, max_len=8)
    runtime = around(engine, parallel, trainer_settings(parallel, folder.config(), 0), model, tmp_path)
    try:
        with pytest.raises(UserError, match="no weights"):
            engine.served_digests()
        runtime.load_base(model)
        runtime.sync("step0000")
        kept = {name: tensor.to(runtime.trainer.export_hf()[name]) for name, tensor in folder.state().items()}
        assert engine.served_digests() == tensor_digests({name: tensor.float() for name, tensor in kept.items()})
        assert engine.weight_version == "step0000"
    finally:
        runtime.close()
