"""What can go wrong between a harness and an engine, each with a name.

Invariant: whatever an engine or the network does, a client raises one of these; its `reason` is the word that
an episode's record keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from internalize.errors import UserError

if TYPE_CHECKING:
    from internalize.engine.protocol import Completion


class EngineError(UserError):
    """Some failure of an engine; `where` names method and URL."""

    title = "engine error"
    reason = "engine"
    batch: list[Completion | BaseException] | None = None
    """Of a batch of which some calls failed: what each call gave, in order."""


class EngineUnreachableError(EngineError):
    """No connection: nothing was sent."""

    reason = "engine_unreachable"


class EngineBusyError(EngineError):
    """It refused for now (429, 503, 529), also on every retry; nothing was started."""

    reason = "engine_busy"


class EngineTimeoutError(EngineError):
    """No reply in time: it hangs, or has too much to do."""

    reason = "engine_timeout"


class EngineDiedError(EngineError):
    """The connection ended before the reply was whole."""

    reason = "engine_died"


class EngineRefusedError(EngineError):
    """It says that the request is wrong (4xx)."""

    reason = "engine_refused"


class EngineFailedError(EngineError):
    """It failed on the request (5xx)."""

    reason = "engine_failed"


class EngineMalformedError(EngineError):
    """The reply is not what the protocol says."""

    reason = "engine_malformed"


class EngineVersionError(EngineError):
    """The reply, or a whole engine, is of other weights than those that were loaded last."""

    reason = "engine_wrong_version"
