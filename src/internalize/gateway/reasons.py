"""Why a session, and so its episode, does not count. One word each; they stand in the records.

Invariant: a session has at most one reason, the first that came up, and answers nothing after it. Failures of
an engine add the reasons of `engine.faults`.
"""

from __future__ import annotations

CONTEXT = "context"
"""The prompt leaves no room for a whole reply."""
ABORTED = "aborted"
"""The engine ended a call from outside: nobody knows what the rest would have said."""
OUTSIDE_CHAIN = "outside_chain"
"""A call that does not continue the last one: compaction, an injected text, an edited history."""
TOOL_FAILED = "tool_failed"
"""A tool result that is not what the game answered: the MCP server died, or the CLI refused the call."""
TOOLS_CHANGED = "tools_changed"
"""The first call offers other tools than look, act and status."""
FIRST_REQUEST_CHANGED = "first_request_changed"
"""The first call differs from the one that this version of the CLI is known to send."""
SPLICE_MISMATCH = "splice_mismatch"
"""The CLI handed back another text than the one that was sampled."""
ENGINE_TIMEOUT = "engine_timeout"
"""No completion in time (the word of `engine.faults`)."""
ENGINE_FAILED = "engine_failed"
"""The engine raised something else than a fault of `engine.faults` (its word for a 5xx)."""
RECORD_FAILED = "record_failed"
"""A row could not be written (disk full): nothing is answered without its row."""
GATEWAY_LOST = "gateway_lost"
"""The gateway ended before the episode did. A new one has a new key and answers nothing of the old run."""
CLOSED = "closed"
"""A call after the episode was over."""
