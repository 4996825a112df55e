"""Our files against the `transformers` reader: equal ids, equal conversations."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import transformers

from internalize.games.dipwheel import DipWheel, decide, random_rules
from internalize.language.markup import SPECIALS
from internalize.language.template import Template


@pytest.fixture(scope="module")
def template() -> Template:
    return Template.of(DipWheel(random_rules(random.Random(1))))


@pytest.fixture(scope="module")
def tokenizer(template: Template, tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    template.vocab.write(folder)
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def test_ids_are_equal(template: Template, tokenizer) -> None:
    vocab = template.vocab
    assert tokenizer.get_vocab() == {token: index for index, token in enumerate(vocab.tokens)}
    rng = random.Random(7)
    for _ in range(100):
        text = " ".join(rng.choices((*vocab.tokens, "purple", "left@", "<x>"), k=rng.randrange(1, 40)))
        ids = vocab.encode(text)
        assert tokenizer.encode(text, add_special_tokens=False) == ids
        assert tokenizer(text)["input_ids"] == ids
        assert tokenizer.decode(ids) == vocab.decode(ids)
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.eos_token_id) == (
        0,
        1,
        template.stop_id,
    )
    assert set(SPECIALS) == {token.content for token in tokenizer.added_tokens_decoder.values()}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("generation_prompt", [True, False])
def test_the_chat_template_renders_the_same_conversation(
    template: Template,
    tokenizer,
    known: bool,
    generation_prompt: bool,
) -> None:
    """A whole episode: observation, think, call, tool result, ..., the last one unanswered."""
    game = DipWheel(random_rules(random.Random(2)))
    state = game.start(5, 3)
    facts = list(game.rules.facts())
    messages = [{"role": "system", "content": " ".join(["know", *facts])}] if known else []
    messages.append({"role": "user", "content": game.observe(state)})
    ids = template.user(game.observe(state), facts if known else None)
    while not state.done:
        think, call = decide(state, game.rules)
        state = game.apply(state, game.call_words()[call])
        messages.append({"role": "assistant", "content": f"{think} </think> <call> {call}"})
        messages.append({"role": "tool", "content": game.observe(state)})
        ids += template.reply_ids(think, call=call) + template.user(game.observe(state))
        rendered = tokenizer.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=generation_prompt, return_dict=False
        )
        assert rendered == ids
    assert template.vocab.id("<unk>") not in ids
