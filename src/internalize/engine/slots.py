"""Which cache row belongs to which session, and which tokens stand in it.

Invariant: `cached(session)` are exactly the tokens whose keys and values the row holds, from position 0 on,
made by the current weights. The last sampled token of a call is never among them: nothing was fed after it,
so the next call feeds it together with what follows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence

from internalize.errors import UserError


class Slots:
    """Session names to cache rows, least recently used first out."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._row: OrderedDict[str, int] = OrderedDict()  # oldest use first
        self._tokens: dict[str, list[int]] = {}
        self._free = list(range(count - 1, -1, -1))

    def __contains__(self, session: str) -> bool:
        return session in self._row

    def __len__(self) -> int:
        return len(self._row)

    def cached(self, session: str) -> list[int]:
        """Tokens held for a session; empty when it has none."""
        return self._tokens.get(session, [])

    def reusable(self, session: str, prompt: Sequence[int]) -> int:
        """Longest common prefix of the held tokens and `prompt`, at most `len(prompt) - 1`: the last token
        must be fed to get logits after it."""
        held = self.cached(session)
        limit = min(len(held), len(prompt) - 1)
        if held[:limit] == list(prompt[:limit]):
            return limit
        return next(i for i in range(limit) if held[i] != prompt[i])

    def acquire(self, sessions: Collection[str]) -> list[int]:
        """Rows for all of these sessions at once; idle others are evicted, oldest first. Raises UserError if
        they cannot fit."""
        if len(sessions) > self.count:
            raise UserError(
                "too many sequences in one call",
                expected=f"at most {self.count} (slots)",
                got=str(len(sessions)),
            )
        wanted = set(sessions)
        if len(wanted) != len(sessions):
            raise UserError("a session appears twice in one call", expected="distinct session names")
        missing = sum(s not in self._row for s in sessions)
        if missing > len(self._free):
            idle = [s for s in self._row if s not in wanted]
            self.release(idle[: missing - len(self._free)])
        for s in sessions:
            if s not in self._row:
                self._row[s] = self._free.pop()
            self._row.move_to_end(s)
        return [self._row[s] for s in sessions]

    def hold(self, session: str, tokens: list[int]) -> None:
        """Record what the session's row holds now."""
        self._tokens[session] = tokens

    def release(self, sessions: Collection[str]) -> None:
        """Give rows back; unknown names are ignored."""
        for s in sessions:
            row = self._row.pop(s, None)
            self._tokens.pop(s, None)
            if row is not None:
                self._free.append(row)

    def clear(self) -> None:
        """Forget every session."""
        self.release(list(self._row))
