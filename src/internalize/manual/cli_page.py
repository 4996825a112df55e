"""The page of the command line, from the commands themselves.

Invariant: every command that `--help` shows is on the page, with every argument and option; a test keeps the page in
step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

HEAD = """# Commands

Every command says the same with `--help`. User errors end with status 2 and name file, key, what was expected and what
to do; a check that finds something wrong ends with status 1.
"""
RULES_HEAD = """
## Commands that rules call

The rules of the workflow call these; each writes one receipt or picture. By hand they are of use in a debugger only.
"""
BY_RULES = "called by "


def cli_page(root: Any) -> str:
    """The page.

    Args:
        root: the group of all commands, as `typer.main.get_command` gives it.
    """
    people: list[str] = []
    rules: list[str] = []
    for name, command in _commands(root, "internalize"):
        about = _about(command)
        (rules if BY_RULES in about.partition("\n")[0] else people).append(_section(name, command, about))
    return HEAD + "".join(people) + RULES_HEAD + "".join(rules)


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every visible command below a group, with the words it is called by, in alphabetical order."""
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        words = f"{path} {name}"
        if hasattr(command, "commands"):
            yield from _commands(command, words)
        else:
            yield words, command


def _about(command: Any) -> str:
    return " ".join((command.help or "").split())


def _section(name: str, command: Any, about: str) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and "--help" not in one.opts]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(_placeholder, arguments)])
    rows = [(f"`{one.name.upper().replace('_', '-')}`", one) for one in arguments]
    rows += [(_spelling(one), one) for one in options]
    lines = [f"\n## {name}\n", about, "", "```text", usage, "```", ""]
    if rows:
        lines += ["| argument or option | meaning | default |", "|---|---|---|"]
        lines += [f"| {spelling} | {_cell(one.help or '')} | {_default(one)} |" for spelling, one in rows]
    return "\n".join([*lines, ""])


def _placeholder(argument: Any) -> str:
    word = argument.name.upper().replace("_", "-") + ("..." if argument.nargs == -1 else "")
    return word if argument.required else f"[{word}]"


def _spelling(option: Any) -> str:
    """`--study`, `--configfile` VALUE; both spellings of a flag."""
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else f" {option.name.upper().replace('_', '-')}"
    return " ".join(f"`{name}{value}`" for name in sorted(names, key=lambda name: not name.startswith("--")))


def _default(one: Any) -> str:
    """Empty when the option has none, or when its help says what happens without it."""
    value = one.default
    if one.required:
        return "must be given"
    if value is None or value is False or callable(value) or value == [] or value == "":
        return "may be repeated" if one.nargs == -1 or getattr(one, "multiple", False) else ""
    if value is True:
        return f"`{one.opts[0]}`"
    return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
