"""The page's own files (`static/`) and the plotting library that is written into it.

Invariant: a page needs nothing but itself: what comes from here is put into it whole. `static_digest` changes with
every edit of `static/`, which no fingerprint of Python code sees.
"""

from __future__ import annotations

import hashlib
import os
from importlib import metadata
from pathlib import Path

from internalize.errors import UserError
from internalize.files import write_text

STATIC = Path(__file__).with_name("static")
SCRIPTS = ("page.js", "tables.js", "plots.js", "workflow.js", "viewer.js")
"""In the order in which they run."""


def static_digest() -> str:
    """Hash of the page's own files."""
    state = hashlib.sha256()
    for path in sorted(STATIC.iterdir()):
        state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()[:16]


def scripts() -> str:
    """The page's own JavaScript."""
    return "\n".join((STATIC / name).read_text() for name in SCRIPTS)


def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets `vegaEmbed` (0.9 MB; vl-convert carries them).

    Making it takes more than a CPU second, so it is kept, by version, in the user's cache folder.
    """
    version = metadata.version("vl-convert-python")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "internalize" / f"vega-{version}.js"
    if cache.exists():
        return cache.read_text()
    import vl_convert

    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    try:
        write_text(cache, text)
    except UserError:
        return text  # a home that cannot be written to costs the second again next time
    return text
