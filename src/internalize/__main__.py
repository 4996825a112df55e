"""The command `internalize`: by the fork server of the run that it is a job of, if there is one, else by itself."""

from __future__ import annotations

import sys

from internalize import forkserver


def main() -> None:
    """Entry point."""
    status = forkserver.ask(sys.argv[1:])
    if status is not None:
        sys.exit(status)
    from internalize.cli import main as run

    run()


if __name__ == "__main__":
    main()
