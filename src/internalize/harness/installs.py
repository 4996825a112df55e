"""Where the agent CLIs are. They are the user's to install (`scripts/install-clis.sh`); none comes with this
package.

Invariant: a CLI that is used is exactly the version whose behaviour is known; another one is refused by name.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from internalize.errors import UserError

FOLDER = "INTERNALIZE_CLI_DIR"
"""Environment variable: the prefix that `scripts/install-clis.sh` installed into."""
MACHINE = "arm64" if platform.machine() in ("aarch64", "arm64") else "x64"
NODE_MAJOR = 22
_VERSION = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Install:
    """A CLI that was found: the words that start it, and its version."""

    command: tuple[str, ...]
    version: str


def claude_code() -> Install | None:
    """Claude Code: the platform package's own binary, else `claude` on PATH."""
    modules = _modules()
    scoped = modules / "@anthropic-ai" if modules else None
    places = [scoped / f"claude-code-linux-{MACHINE}/claude", scoped / "claude-code/bin/claude.exe"] if scoped else []
    found = next((str(place) for place in places if place.is_file()), None) or shutil.which("claude")
    return _install((found,)) if found else None


def qwen_code() -> Install | None:
    """Qwen Code: `cli.js` under node 22 or later. Never the `qwen` launcher, which leaves its children behind
    when it is ended."""
    modules, node = _modules(), node_22()
    script = modules / "@qwen-code/qwen-code/cli.js" if modules else None
    if script is None or not script.is_file():
        launcher = shutil.which("qwen")
        script = Path(launcher).resolve().with_name("cli.js") if launcher else None
    if script is None or not script.is_file() or node is None:
        return None
    return _install((node, str(script)))


def node_22() -> str | None:
    """A node of at least version 22."""
    modules = _modules()
    bundled = modules / f"node-linux-{MACHINE}/bin/node" if modules else None
    for place in (str(bundled) if bundled and bundled.is_file() else None, shutil.which("node")):
        if place and int((_ask((place,)) or "0").split(".")[0]) >= NODE_MAJOR:
            return place
    return None


def pinned(name: str, found: Install | None, version: str) -> Install:
    """The install, if it is the one we know. Raises UserError, which says how to get it."""
    if found is not None and found.version == version:
        return found
    raise UserError(
        f"{name} is not installed" if found is None else f"{name} is of another version",
        expected=version,
        got=found.version if found else f"nothing in ${FOLDER} or on PATH",
        fix=f"scripts/install-clis.sh FOLDER, then export {FOLDER}=FOLDER",
    )


def _modules() -> Path | None:
    folder = os.environ.get(FOLDER)
    return Path(folder) / "node_modules" if folder else None


def _install(command: tuple[str, ...]) -> Install | None:
    version = _ask(command)
    return Install(command, version) if version else None


def _ask(command: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stdout)
    return match.group() if match and done.returncode == 0 else None
