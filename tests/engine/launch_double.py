"""Stands where `python -m sglang.launch_server` stands: reads SGLang's arguments and serves with our engine."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

from internalize.engine.app import create_app
from internalize.engine.folder import ModelFolder
from internalize.engine.scheduler import Scheduler


def main() -> None:
    """Serves on 127.0.0.1 until it is ended."""
    import uvicorn

    parser = argparse.ArgumentParser()
    for flag in ("--model-path", "--host", "--served-model-name", "--log-level"):
        parser.add_argument(flag, required=True)
    for flag in ("--port", "--tensor-parallel-size", "--context-length", "--max-running-requests"):
        parser.add_argument(flag, type=int, required=True)
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--skip-server-warmup", action="store_true", required=True)
    given = parser.parse_args()
    folder = ModelFolder(Path(given.model_path))
    scheduler = Scheduler(folder.engine(given.max_running_requests, given.context_length)).start()
    listener = socket.create_server((given.host, given.port))
    server = uvicorn.Server(uvicorn.Config(create_app(scheduler, folder), log_level=given.log_level))
    server.run(sockets=[listener])
    scheduler.stop()


if __name__ == "__main__":
    main()
