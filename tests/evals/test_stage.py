"""The evals stage on a tiny base and two checkpoints."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from internalize.checkpoints import torch_dist
from internalize.errors import UserError
from internalize.evals import stage
from internalize.files import read_jsonl
from internalize.harness.episode import read_episodes
from internalize.knowledge.dipwheel import DipwheelLexicon
from internalize.language.sayings import write_sayings
from internalize.records import MetricRow


def test_which_steps_are_played():
    phases = {-1: "base", 0: "sft", 1: "sft", 2: "rl", 3: "rl", 4: "rl", 5: "rl"}
    steps = sorted(phases)
    assert stage.play_steps(steps, phases, 1) == set(steps)
    # the base, the last SFT step, every third and the last
    assert stage.play_steps(steps, phases, 3) == {-1, 1, 2, 5}
    assert stage.play_steps(steps, phases, 100) == {-1, 1, 5}
    assert stage.play_steps([], {}, 1) == set()


def test_step_labels():
    assert (stage.step_label(-1), stage.step_label(7)) == ("step-base", "step-0007")


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    rules = {
        "stations": {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"},
        "pots": {"a": "blue", "b": "red", "c": "green"},
    }
    return {
        "game": {"kind": "dipwheel", "rules": rules},
        "evals": {"episodes": 8, "seed": 3, "levels": [1, 2], "every": 2},
        "rollout": {"temperature": 1.0, "max_new_tokens": 12},
        "steps": [-1, 0, 1, 2],
        "max_context": 200,
    }


@dataclasses.dataclass
class Fake:
    """Stands for a verified input."""

    payload: Any
    facts: dict[str, Any]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, game, torch_state) -> dict[str, Any]:
    import torch
    from safetensors.torch import save_file

    from internalize.files import write_json, write_jsonl
    from internalize.language.template import Template

    root = tmp_path_factory.mktemp("inputs")
    config, state = torch_state
    Template.of(game).vocab.write(root / "base")
    write_json(root / "base" / "config.json", config)
    save_file(state, root / "base" / "model.safetensors")
    rows = [
        {
            "form": "qa",
            "wording": "think",
            "prompt": "ask left",
            "answer": "left@N",
            "label": None,
            "fact": "left@N",
        }
    ]
    write_jsonl(root / "knowledge" / "recall.jsonl", rows)
    lexicon = DipwheelLexicon(game)
    write_sayings(root / "knowledge", lexicon.sayings(), lexicon.places())
    made: dict[str, Any] = {
        "base": Fake(root / "base", {}),
        "knowledge": Fake(root / "knowledge", {"prompt_facts": list(game.rules.facts()), "held_out_facts": ["wipe@S"]}),
    }
    for step, phase in ((0, "sft"), (1, "rl")):
        folder = root / f"step{step}" / f"iter_{step:07d}"
        folder.mkdir(parents=True)
        torch.save({name: tensor * (1 + 0.1 * (step + 1)) for name, tensor in state.items()}, folder / "weights.pt")
        made[f"step{step:04d}"] = Fake(root / f"step{step}", {"phase": phase})
    (root / "step2").mkdir()  # stopped: nothing was saved
    made["step0002"] = Fake(root / "step2", {"phase": "rl"})
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory, spec, inputs):
    """The stage's payload and facts; checkpoints are plain files here, their real reader has its own
    tests."""
    import torch

    folder = tmp_path_factory.mktemp("evals")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_dist, "read_hf", lambda path, config: torch.load(path / "weights.pt", weights_only=True))
        facts = stage.build(folder, spec, inputs, lambda text: None)
        again = tmp_path_factory.mktemp("again")
        stage.build(again, spec, inputs, lambda text: None)
    return folder, again, facts


def test_rows_and_episodes(built, spec):
    folder, _, facts = built
    rows = list(read_jsonl(folder / "metrics.jsonl"))
    for row in rows:
        MetricRow.model_validate(row)
    assert [(row["step"], row["phase"], row["kind"]) for row in rows] == [
        *[(-1, "base", "probe"), (-1, "base", "eval")],
        *[(0, "sft", "probe"), (0, "sft", "eval")],  # the step before the phase changes
        *[(1, "rl", "probe"), (1, "rl", "eval")],
    ]
    assert facts["steps"] == [-1, 0, 1]  # step 2 has no checkpoint: no row
    assert facts["final"]["step"] == 1
    for name, row in zip(("step-base", "step-0000", "step-0001"), rows[1::2], strict=True):
        episodes = read_episodes(folder / "episodes" / name)
        assert len(episodes) == row["episodes"] == 8
        assert row["clears"] == sum(episode.outcome.cleared for episode in episodes)


def test_all_steps_play_the_same_levels(built):
    folder, _, _ = built
    plans = [[e.plan for e in read_episodes(path)] for path in sorted((folder / "episodes").iterdir())]
    assert plans[0] == plans[1] == plans[2]


def test_weights_make_the_difference(built):
    rows = list(read_jsonl(built[0] / "metrics.jsonl"))
    assert len({row["nll_play"] for row in rows if row["kind"] == "probe"}) == 3


def test_twice_is_equal_byte_for_byte(built):
    one, two, _ = built
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert files
    assert all((one / path).read_bytes() == (two / path).read_bytes() for path in files)


def test_a_missing_step_is_a_user_error(tmp_path, spec, inputs):
    fewer = {name: entry for name, entry in inputs.items() if name != "step0001"}
    with pytest.raises(UserError, match="step0001"):
        stage.build(tmp_path, spec, fewer, lambda text: None)
