"""The tokenizer and chat template of a model from the hub, as a `dialogue.Dialogue`.

Invariant: everything around the model's own words is rendered by the template that lies in the model's folder, tool
list included, and cut out of its rendering at a marked text: the first prompt is exactly `apply_chat_template`'s, and
a history is the plain concatenation of prompts and sampled ids (templates that drop earlier thinks would break it).

A reply is `think`, then one tool call or an answer in text. Calls are read as JSON (`{"name", "arguments"}`) and as XML
(`<function=act><parameter=action>..`), the two forms of the Qwen family; they are written as the template writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from internalize.errors import UserError
from internalize.files import read_json
from internalize.games.tools import TOOLS, as_functions
from internalize.language.calls import CallTable, ToolCall
from internalize.language.dialogue import Reply

SYSTEM = (
    "You play a game by its tools, one call a turn. Think first, then make exactly one call. "
    "What a call shows comes back as its result. Answer in text only when you are asked a question."
)
KNOWN = "What is known about the game:\n"
ITEM = "- "
OPEN, CLOSE = "<think>", "</think>"
MARK = "MARKEDTEXT"
"""Stands where a text of ours belongs while the template is rendered."""

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_FUNCTION = re.compile(r"<function=([^>\s]+)>(.*)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_ARGUMENTS = {tool.name: frozenset(tool.schema["properties"]) for tool in TOOLS}


class ChatTemplate:
    """See `dialogue.Dialogue`.

    Args:
        tokenizer: a `tokenizers.Tokenizer`.
        source: the template's text (Jinja).
        special: names that templates use (`bos_token`, `eos_token`).
        calls: the calls of the game, every one of which has a word.
        legend: how the game's screen is read; part of the system message.
    """

    canonical = False
    answer_tokens = 256

    def __init__(
        self, tokenizer: Any, source: str, special: Mapping[str, str], calls: CallTable, legend: str = ""
    ) -> None:
        self.calls = calls
        self._tokenizer = tokenizer
        self._special = dict(special)
        self._template = _compiled(source)
        system = f"{SYSTEM} {legend}".rstrip()
        asked = [{"role": "system", "content": system}, {"role": "user", "content": MARK}]
        opened = self._render(asked)
        self._before, self._after = _cut(opened, MARK)
        self._prompt = opened[len(self._render(asked, prompt=False)) :]
        """The generation prompt: what stands between a turn's end and the reply."""
        self._marker = self.encode(self._prompt)
        self._opened = self._prompt.rstrip().endswith(OPEN)
        _, closing = _cut(self._reply_text(asked, {"role": "assistant", "content": MARK}), MARK)
        self.stop_id = self.encode(closing)[0]
        self._stop = self.decode([self.stop_id])

    @classmethod
    def load(cls, folder: Path, calls: CallTable, legend: str = "") -> ChatTemplate:
        """The tokenizer of a model folder.

        Raises:
            UserError: a file or package is missing, or the template cannot be rendered.
        """
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise UserError(
                "a model with an open vocabulary needs its tokenizer's library",
                got=str(error),
                fix="pip install 'internalize[hub]' (from a checkout: pip install -e '.[hub]')",
            ) from error
        settings = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
        own = folder / "chat_template.jinja"
        source = own.read_text(encoding="utf-8") if own.exists() else settings.get("chat_template")
        if not isinstance(source, str):
            raise UserError(
                "the model has no chat template",
                where=str(folder),
                expected=f"{own.name}, or one in its tokenizer_config.json",
            )
        special = {key: _content(value) for key, value in settings.items() if key.endswith("_token") and value}
        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")), source, special, calls, legend)

    @property
    def size(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    # Text

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def offsets(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        sizes = [len(self.decode([index])) for index in ids]
        ends = list(accumulate(sizes))
        if ends and ends[-1] != len(self.decode(ids)):  # a character of several tokens, or a space that decoding drops
            ends = [len(self.decode(ids[: number + 1])) for number in range(len(ids))]
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def unreadable(self, ids: Sequence[int]) -> int:
        return 0

    # What the model reads

    def task(self, text: str, knowledge: Sequence[str] | None = None) -> str:
        if not knowledge:
            return text
        return KNOWN + "".join(f"{ITEM}{one}\n" for one in knowledge) + "\n" + text

    def opening(self, task: str) -> list[int]:
        return self.encode(self._before + task + self._after)

    def user(self, text: str, knowledge: Sequence[str] | None = None) -> list[int]:
        return self.opening(self.task(text, knowledge))

    def result(self, text: str, reply: Sequence[int]) -> list[int]:
        before, after = self._turn
        missing = [] if reply and reply[-1] == self.stop_id else [self.stop_id]
        return [*missing, *self.encode(before + text + after)]

    def read_user(self, ids: Sequence[int]) -> tuple[str, list[str]]:
        shown = self.decode(ids)
        for before, after in ((self._before, self._after), self._turn, (self._stop + self._turn[0], self._turn[1])):
            if shown.startswith(before) and shown.endswith(after):
                text = shown[len(before) : len(shown) - len(after)]
                break
        else:
            return shown, []
        if not text.startswith(KNOWN):
            return text, []
        known, _, rest = text[len(KNOWN) :].partition("\n\n")
        return rest, [line.removeprefix(ITEM) for line in known.split("\n")]

    def split(self, tokens: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        pairs: list[tuple[list[int], list[int]]] = []
        size, at = len(self._marker), 0
        while at < len(tokens):
            start = next(
                (i + size for i in range(at, len(tokens) - size + 1) if list(tokens[i : i + size]) == self._marker),
                len(tokens),
            )
            end = next((i + 1 for i in range(start, len(tokens)) if tokens[i] == self.stop_id), len(tokens))
            pairs.append((list(tokens[at:start]), list(tokens[start:end])))
            at = end
        return pairs

    # What the model writes

    def reply_ids(self, think: str, call: str | None = None, say: str | None = None) -> list[int]:
        if (call is None) == (say is None):
            raise ValueError(f"a reply is either a call or a text answer, got call={call!r} say={say!r}")
        message: dict[str, Any] = {"role": "assistant", "content": say or ""}
        if call is not None:
            told = self.calls.expand(call)
            arguments = {key: value for key, value in told.arguments().items() if value is not None}
            message["tool_calls"] = [{"type": "function", "function": {"name": told.tool, "arguments": arguments}}]
        asked = [{"role": "user", "content": MARK}]
        text = self._reply_text(asked, message).partition(self._stop)[0]
        return [*self.encode(self._thought(think) + text), self.stop_id]

    def ended(self, reply: Sequence[int]) -> list[int]:
        return [*reply, *([] if reply and reply[-1] == self.stop_id else [self.stop_id])]

    def parse(self, ids: Sequence[int]) -> Reply:
        """Exactly one call, or a text; a think that does not end, or no end token, is "bad"."""
        text = self.decode([i for i in ids if i != self.stop_id])
        head, closed, body = text.partition(CLOSE)
        thinks = self._opened or OPEN in text
        think = (head if closed or thinks else "").replace(OPEN, "").strip()
        whole = bool(ids) and ids[-1] == self.stop_id and (bool(closed) or not thinks)
        if not whole:
            return Reply(think, "bad")
        rest = body if closed else text
        found = _CALL.findall(rest)
        if not found:
            said = rest.strip()
            return Reply(think, "say", say=said) if said and "<tool_call>" not in said else Reply(think, "bad")
        call = _read_call(found[0]) if len(found) == 1 else None
        return Reply(think, "bad") if call is None else Reply(think, "call", call=self.calls.word_of(call))

    def begun(self, parts: Sequence[str]) -> list[int]:
        return self.encode(self._think_open + "".join(f"{part}\n" for part in parts))

    def recital(self, parts: Sequence[str]) -> list[int]:
        return self.encode("".join(f"{part}\n" for part in parts))

    def top(self, reply: Sequence[int]) -> int:
        opened = self.encode(self._think_open)
        return len(opened) if list(reply[: len(opened)]) == opened else 0

    def said(self) -> list[int]:
        return self.encode(self._thought(""))

    # Parts

    @cached_property
    def _turn(self) -> tuple[str, str]:
        """What stands around a tool's result, from behind the end token of the reply before it."""
        history: list[dict[str, Any]] = [{"role": "user", "content": "."}, {"role": "assistant", "content": MARK}]
        for role in ("tool", "user"):  # a template without tools shows results as user turns
            try:
                shown = self._render([*history, {"role": role, "content": MARK + MARK}])
            except UserError:
                continue
            if MARK + MARK in shown:
                before, after = _cut(shown, MARK + MARK)
                return before.rpartition(MARK)[2].partition(self._stop)[2], after
        raise UserError("the model's chat template shows no tool results", got="neither role tool nor role user")

    @property
    def _think_open(self) -> str:
        return "" if self._opened else f"{OPEN}\n"

    def _thought(self, think: str) -> str:
        return f"{self._think_open}{think}\n{CLOSE}\n\n"

    def _reply_text(self, asked: list[dict[str, Any]], message: dict[str, Any]) -> str:
        """What the template writes for a reply, its think aside."""
        shown = self._render([*asked, message], prompt=False)
        text = shown[len(self._render(asked, prompt=False)) :]
        text = text.removeprefix(self._prompt.replace(f"{OPEN}\n", "").rstrip(" "))
        return text.partition(CLOSE)[2].lstrip("\n") if CLOSE in text else text

    def _render(self, messages: list[dict[str, Any]], prompt: bool = True) -> str:
        from jinja2 import TemplateError

        try:
            return str(
                self._template.render(
                    messages=messages, tools=as_functions(), add_generation_prompt=prompt, **self._special
                )
            )
        except TemplateError as error:
            raise UserError("the model's chat template refuses a conversation", got=str(error)) from error


def _read_call(text: str) -> ToolCall | None:
    """The call that a `<tool_call>` holds; None if it is none of ours."""
    function = _FUNCTION.search(text)
    try:
        if function is not None:
            name: Any = function[1]
            arguments: Any = {key: _plain(value) for key, value in _PARAMETER.findall(function[2])}
        else:
            data = json.loads(text)
            name, arguments = data["name"], data.get("arguments") or {}
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        if name not in _ARGUMENTS or not arguments.keys() <= _ARGUMENTS[name]:
            return None
        if name != "act":
            return ToolCall(name)
        action, x, y = (arguments.get(key) for key in ("action", "x", "y"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    whole = all(value is None or (isinstance(value, int) and not isinstance(value, bool)) for value in (x, y))
    return ToolCall("act", action, x, y) if isinstance(action, str) and whole else None


def _plain(value: str) -> Any:
    """A parameter's text: a number if it is one."""
    return int(value) if re.fullmatch(r"-?\d{1,6}", value.strip()) else None if value.strip() == "null" else value


def _compiled(source: str) -> Any:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def as_json(value: Any, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=False, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise UserError("the model's chat template cannot be read", got=str(error)) from error


def _cut(text: str, mark: str) -> tuple[str, str]:
    before, found, after = text.partition(mark)
    if not found:
        raise UserError("the model's chat template drops a message", got=text[-200:])
    return before, after


def _content(token: Any) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token)
