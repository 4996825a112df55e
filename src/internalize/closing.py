"""Things that are closed, by `close` or at the end of a `with`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Its `with` block ends in `close`, whatever happens in it."""

    @abstractmethod
    def close(self) -> None:
        """Frees what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
