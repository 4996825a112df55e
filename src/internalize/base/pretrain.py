"""Meta-training: from random weights to a model that plays by the rules in its prompt.

Invariant: the result is a function of (recipe, held-out rules, vocabulary, torch build); progress is
counted in steps, never in seconds. The only trainer is `internalize.train.trainer.Trainer`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from internalize.base.corpus import Conversation, Corpus
from internalize.base.play import Side, play_side
from internalize.base.recipe import Recipe
from internalize.engine.local import LocalEngine
from internalize.games.dipwheel import DipWheel
from internalize.language.template import Template
from internalize.seeds import derive
from internalize.train.batch import TrainSequence
from internalize.train.losses import LossSpec
from internalize.train.trainer import OptimizerSpec, ParallelSpec, Trainer


@dataclass(frozen=True)
class Check:
    """Play at one step of the training: the base with the held-out facts in its prompt, and without."""

    step: int
    teacher: Side
    base: Side

    def row(self) -> dict[str, Any]:
        """Flat figures for progress and provenance."""
        sides = {"teacher": self.teacher.summary(), "base": self.base.summary()}
        keys = ("clears", "episodes", "return_mean")
        return {
            "step": self.step,
            **{f"{name}_{key}": side[key] for name, side in sides.items() for key in keys},
        }

    def passes(self, recipe: Recipe) -> bool:
        """True if the recipe's stop rule says that the training is done."""
        return self.teacher.share >= recipe.stop_teacher and self.base.share <= recipe.stop_base


@dataclass(frozen=True)
class Trained:
    """The weights (Hugging Face names, fp32), their `config.json`, and how they came to be."""

    state: dict[str, Tensor]
    config: dict[str, Any]
    steps: int
    checks: list[Check]
    losses: list[float]


def initial_weights(config: Mapping[str, Any], recipe: Recipe) -> dict[str, Tensor]:
    """Random weights under Hugging Face names, fp32, from `recipe.seed` alone.

    Embeddings N(0, 0.05^2); projections N(0, 1/fan_in), those that write to the residual stream divided by
    sqrt(2 layers); norms 1, the query/key norms `qk_gain`.
    """
    generator = torch.Generator().manual_seed(derive("base", "weights", recipe.seed) % (1 << 63))
    d, head, width = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    depth = 1.0 / math.sqrt(2 * config["num_hidden_layers"])

    def normal(rows: int, columns: int, std: float) -> Tensor:
        return torch.empty(rows, columns).normal_(0.0, std, generator=generator)

    state = {"model.embed_tokens.weight": normal(config["vocab_size"], d, 0.05)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        state[at + "input_layernorm.weight"] = torch.ones(d)
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            state[f"{at}self_attn.{name}_proj.weight"] = normal(rows, d, d**-0.5)
        for name in ("q", "k"):
            state[f"{at}self_attn.{name}_norm.weight"] = torch.full((head,), recipe.qk_gain)
        state[at + "self_attn.o_proj.weight"] = normal(d, queries, depth * queries**-0.5)
        state[at + "post_attention_layernorm.weight"] = torch.ones(d)
        state[at + "mlp.gate_proj.weight"] = normal(width, d, d**-0.5)
        state[at + "mlp.up_proj.weight"] = normal(width, d, d**-0.5)
        state[at + "mlp.down_proj.weight"] = normal(d, width, depth * width**-0.5)
    state["model.norm.weight"] = torch.ones(d)
    return state


def sequence(conversation: Conversation, name: str) -> TrainSequence:
    """`conversation` as the trainer takes it."""
    return TrainSequence(tokens=conversation.tokens, ce_weights=conversation.weights, episode=name)


def pretrain(
    recipe: Recipe, game: DipWheel, template: Template, report: Callable[[dict[str, Any]], None] | None = None
) -> Trained:
    """Train a base from scratch; `game` carries the rules that must stay unseen.

    Every `check_every` steps the model plays the held-out rules and may stop by the recipe's rule;
    `report` gets one flat dict every 50 steps and one a check.
    """
    vocabulary = template.vocab
    config = recipe.model_config_dict(len(vocabulary), template.stop_id, vocabulary.id("<pad>"))
    corpus = Corpus(template, game.rules, recipe.mix)
    optimizer = OptimizerSpec(
        lr=recipe.lr,
        betas=(recipe.betas[0], recipe.betas[1]),
        weight_decay=recipe.weight_decay,
        clip_grad=recipe.clip_grad,
    )
    with Trainer(config, optimizer, ParallelSpec(), seed=recipe.seed) as trainer:
        trainer.load_hf(initial_weights(config, recipe))
        return _run(trainer, corpus, recipe, game, template, report or (lambda row: None))


def _run(
    trainer: Trainer,
    corpus: Corpus,
    recipe: Recipe,
    game: DipWheel,
    template: Template,
    say: Callable[[dict[str, Any]], None],
) -> Trained:
    rng = random.Random(derive("base", "corpus", recipe.seed))
    engine = LocalEngine(trainer.model_config, slots=recipe.check_episodes, max_len=recipe.max_positions)
    checks: list[Check] = []
    losses: list[float] = []
    step = 0
    while step < recipe.steps:
        batch = [sequence(talk, f"meta/{step}/{i}") for i, talk in enumerate(corpus.batch(rng, recipe.conversations))]
        stats = trainer.train_step(batch, LossSpec(), lr=recipe.learning_rate(step))
        losses.append(stats.ce_loss)
        step += 1
        if step % 50 == 0:
            say({"step": step, "loss": round(sum(losses[-50:]) / 50, 4), "tokens": stats.tokens})
        if step % recipe.check_every == 0 or step == recipe.steps:
            engine.update_weights(trainer.export_hf(), version=f"meta-{step}")
            check = _check(engine, game, template, recipe, step)
            checks.append(check)
            say(check.row())
            if check.passes(recipe):
                break
    return Trained(trainer.export_hf(), trainer.model_config, step, checks, losses)


def _check(engine: LocalEngine, game: DipWheel, template: Template, recipe: Recipe, step: int) -> Check:
    def side(name: str, facts: tuple[str, ...] | None) -> Side:
        # a band of its own: the gate later plays levels on which no choice was made
        key = ("base", "check", recipe.seed, step, name)
        return play_side(
            engine,
            game,
            template,
            band="check",
            episodes=recipe.check_episodes,
            seed=recipe.seed,
            key=key,
            facts=facts,
        )

    return Check(step, side("teacher", game.rules.facts()), side("base", None))
