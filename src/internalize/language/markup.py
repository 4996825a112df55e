"""The markup of a conversation: special tokens and the chat template that outside tools read.

Invariant: `CHAT_TEMPLATE` renders the same tokens as `language.template.Template`; a test holds them
together.
"""

from __future__ import annotations

PAD, UNK, USER, ASSISTANT, END, THINK_END, CALL, SAY = (
    "<pad>",
    "<unk>",
    "<u>",
    "<a>",
    "<end>",
    "</think>",
    "<call>",
    "<say>",
)

#: Special tokens in vocabulary order: their ids are 0 .. 7 in every vocabulary.
SPECIALS = (PAD, UNK, USER, ASSISTANT, END, THINK_END, CALL, SAY)

#: Word that opens the knowledge in the first user turn.
KNOW = "know"

#: Jinja. A system message is the knowledge (`know F1 .. F9`) and moves into the first user turn; tool results
#: are user turns; an assistant message is the whole reply without `<end>`. Every user turn already ends in
#: the generation prompt `<a>`, so `add_generation_prompt` changes nothing.
CHAT_TEMPLATE = (
    "{%- set front = namespace(text='', gap='') -%}"
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'system' -%}"
    "{%- set front.text = message['content'] ~ ' ' -%}"
    "{%- elif message['role'] == 'assistant' -%}"
    "{{ front.gap ~ message['content'] ~ ' <end>' }}"
    "{%- set front.gap = ' ' -%}"
    "{%- else -%}"
    "{{ front.gap ~ '<u> ' ~ front.text ~ message['content'] ~ ' <a>' }}"
    "{%- set front.text = '' -%}{%- set front.gap = ' ' -%}"
    "{%- endif -%}"
    "{%- endfor -%}"
)
