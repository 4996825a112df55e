"""From a HF model folder to something that plays.

Invariant: the engine holds exactly the tensors of the folder (as fp32), and the template renders with the
folder's own vocabulary; harvests, gates, evals and arms all start here.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

from internalize.engine.folder import ModelFolder
from internalize.engine.local import LocalEngine
from internalize.engine.protocol import Scoring
from internalize.errors import UserError
from internalize.files import read_json
from internalize.games.protocol import Game
from internalize.language.dialogue import Dialogue
from internalize.language.folder import load_dialogue

if TYPE_CHECKING:
    from internalize.engine.remote import RemoteEngine

Dtype = Literal["bfloat16", "float16", "float32"]


def load_engine(
    folder: Path, slots: int = 128, max_len: int = 512, game: Game | None = None
) -> tuple[LocalEngine, Dialogue, dict[str, Any]]:
    """Engine with the folder's weights (version: the first 12 hex digits of their hash), template and
    `config.json`.

    Args:
        game: whose call words the template knows; the bundled game's if None.

    Raises:
        UserError: vocabulary and model do not fit, or the engine cannot run this architecture.
    """
    template, config = load_template(folder, game)
    return ModelFolder(folder).engine(slots, max_len), template, config


def load_template(folder: Path, game: Game | None = None) -> tuple[Dialogue, dict[str, Any]]:
    """The dialogue of the folder's tokenizer, and `config.json`.

    Raises:
        UserError: vocabulary and model do not fit.
    """
    config: dict[str, Any] = read_json(folder / "config.json")
    template = load_dialogue(folder, game)
    if template.size > int(config.get("vocab_size", 0)):
        raise UserError(
            "the vocabulary is larger than the model's",
            where=str(folder),
            expected=f"at most {config.get('vocab_size')} tokens",
            got=str(template.size),
        )
    return template, config


class Player(Protocol):
    """What a stage plays with: an engine that holds the base, and can take a step's weights."""

    @property
    def engine(self) -> Scoring:
        """What samples and judges."""

    @property
    def template(self) -> Dialogue:
        """The model's language."""

    @property
    def together(self) -> bool:
        """Calls of several episodes may share batches (`harness.choose`)."""

    def load_checkpoint(self, folder: Path, version: str) -> None:
        """Takes the weights of an `iter_*` folder."""


@dataclass
class _Here:
    """An engine of this process."""

    engine: LocalEngine
    template: Dialogue
    config: dict[str, Any]
    together: bool = False

    def load_checkpoint(self, folder: Path, version: str) -> None:
        from internalize.checkpoints.torch_dist import read_hf

        self.engine.update_weights(read_hf(folder, self.config), version)


@dataclass
class _Served:
    """Servers; weights reach them as model folders, one at a time in `scratch`."""

    engine: RemoteEngine
    template: Dialogue
    base: Path
    config: dict[str, Any]
    scratch: Path
    together: bool = True

    def load_checkpoint(self, folder: Path, version: str) -> None:
        from internalize.checkpoints.to_hf import write_weights

        made = self.scratch / version
        copy_model_files(self.base, made)
        write_weights(folder, self.config, made, dtype_of(self.config))
        self.engine.update_weights(made, version)
        for other in self.scratch.iterdir():
            if other != made:
                shutil.rmtree(other)


@contextmanager
def open_player(
    folder: Path, game: Game, engine: Mapping[str, Any] | None, *, slots: int = 128, max_len: int = 512
) -> Iterator[Player]:
    """A player with the weights of a model folder.

    Args:
        engine: the study's `engine`; None: the engine of this process.
        slots: calls at once, of each engine.
        max_len: most tokens of a sequence.

    Raises:
        UserError: vocabulary and model do not fit, or no engine comes up.
    """
    if engine is None:
        local, template, config = load_engine(folder, slots, max_len, game)
        yield _Here(local, template, config)
        return
    from internalize.engine.servers import open_servers  # the web client, which others do not need

    template, config = load_template(folder, game)
    with (
        tempfile.TemporaryDirectory(prefix="weights-") as scratch,
        open_servers(engine, folder, slots, max_len) as served,
    ):
        yield _Served(served, template, folder, config, Path(scratch))


def copy_model_files(model: Path, folder: Path) -> None:
    """The files of a model folder that are no weights: configuration and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in model.iterdir():
        if path.is_file() and not path.name.startswith("model") and path.suffix != ".safetensors":
            shutil.copyfile(path, folder / path.name)


def dtype_of(config: Mapping[str, Any]) -> Dtype:
    """The type of numbers that a model's configuration names: what its engines compute with."""
    named = config.get("dtype") or config.get("torch_dtype") or "float32"
    if named not in get_args(Dtype):
        raise UserError("the model's configuration names no usable dtype", where="config.json", got=str(named))
    return cast(Dtype, named)
