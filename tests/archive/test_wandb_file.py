"""The W&B mirror: read by the real package's own code, and its own files read by ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.archive.runs import export
from internalize.archive.wandb_file import OfflineRun, logged, read_run, records, write_run
from internalize.errors import CorruptPayload
from internalize.files import read_jsonl

QUIET = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true", "WANDB_DISABLE_CODE": "true"}

values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=30)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.dictionaries(st.text("ab/é", min_size=1, max_size=9), values, max_size=5), max_size=30),
    st.integers(0, 70_000),
)
def test_reading_gives_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]], long: int
) -> None:
    history = [{**row, "_step": number} for number, row in enumerate(rows)]
    run = OfflineRun(
        "id", "p", "name", "g", "train", {"lr": 1e-4, "x": {"y": [1]}, "long": "x" * long}, history, {"a": 1}, 0
    )
    path = tmp_path_factory.mktemp("w") / "run.wandb"
    write_run(path, run, "test")
    assert read_run(path) == run


def test_a_cut_or_damaged_file_is_refused(tmp_path: Path) -> None:
    run = OfflineRun("id", "p", "n", config={}, history=[{"_step": n, "x": "y" * 9000} for n in range(20)], exit_code=0)
    path = tmp_path / "run.wandb"
    write_run(path, run, "test")
    whole = path.read_bytes()
    path.write_bytes(whole[:100_000])
    with pytest.raises(CorruptPayload, match="middle"):
        read_run(path)
    path.write_bytes(whole[:50_000] + bytes([whole[50_000] ^ 1]) + whole[50_001:])
    with pytest.raises(CorruptPayload, match="damaged"):
        read_run(path)
    path.write_bytes(b"no")
    with pytest.raises(CorruptPayload, match=r"not a \.wandb file"):
        read_run(path)


def test_one_row_a_step_with_the_kinds_side_by_side() -> None:
    rows = [
        {"run": "r", "arm": "a", "seed": 0, "step": 1, "phase": "rl", "kind": "rollout", "return_mean": 0.5, "x": None},
        {"run": "r", "arm": "a", "seed": 0, "step": 0, "phase": "sft", "kind": "train", "loss": 1.0},
        {"run": "r", "arm": "a", "seed": 0, "step": 1, "phase": "rl", "kind": "eval", "return_mean": 0.7},
    ]
    first, second = logged(rows)
    assert first == {"phase": "sft", "train/loss": 1.0, "_step": 0, "_timestamp": 0, "_runtime": 0}
    assert second["rollout/return_mean"] == 0.5
    assert second["eval/return_mean"] == 0.7
    assert "rollout/x" not in second


def test_the_real_packages_descriptors_read_our_records(tmp_path: Path) -> None:
    pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    run = OfflineRun(
        "abcd1234", "p", "recite-seed0", config={"lr": 1e-4}, history=[{"_step": 3, "train/loss": 0.5}], exit_code=0
    )
    write_run(tmp_path / "run.wandb", run, "test")
    found = [pb.Record.FromString(one) for one in records((tmp_path / "run.wandb").read_bytes(), "")]
    assert [one.WhichOneof("record_type") for one in found] == ["header", "run", "history", "summary", "exit"]
    assert [one.num for one in found] == [1, 2, 3, 4, 5]
    assert (found[1].run.run_id, found[1].run.display_name) == ("abcd1234", "recite-seed0")
    assert found[2].history.step.num == 3
    assert {i.nested_key[0]: json.loads(i.value_json) for i in found[2].history.item} == run.history[0]


def test_a_run_of_the_real_package_offline_exports_one_row_a_logged_step(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    script = (
        "import wandb\n"
        "run = wandb.init(project='p', name='n', id='abcd1234', mode='offline',\n"
        "                 config={'lr': 1e-4, 'deep': {'x': 1}},\n"
        "                 settings=wandb.Settings(x_disable_stats=True, x_disable_meta=True, console='off'))\n"
        "for step in range(40):\n"
        "    run.log({'train/loss': 1.0 / (step + 1), 'rollout/clears': step, 'text': 'é' * step * 50}, step=step)\n"
        "run.finish()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=os.environ | QUIET,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    run = read_run(file)
    export(run, tmp_path / "export")
    rows = list(read_jsonl(tmp_path / "export" / "history.jsonl"))
    assert [row["_step"] for row in rows] == list(range(40))
    assert [row["train/loss"] for row in rows] == [1.0 / (step + 1) for step in range(40)]
    assert (run.id, run.name, run.project, run.exit_code) == ("abcd1234", "n", "p", 0)
    assert run.config["deep"] == {"x": 1}
    assert run.summary["rollout/clears"] == 39


class _Sink(BaseHTTPRequestHandler):
    """As much of a W&B server as `wandb sync` needs; keeps the history lines it is sent."""

    protocol_version = "HTTP/1.1"
    lines: list[str]

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer: dict[str, object] = {}
        if self.path == "/graphql":
            bucket = {"id": "i", "name": "x", "displayName": "x", "project": {"name": "p", "entity": {"name": "me"}}}
            asked = json.loads(body).get("variables", {}).get("files", [])
            host = f"http://{self.headers['Host']}/upload/"
            files = [{"name": name, "uploadUrl": host + name} for name in asked if isinstance(name, str)]
            answer = {
                "data": {
                    "upsertBucket": {"bucket": bucket, "inserted": True},
                    "viewer": {"id": "v", "entity": "me"},
                    "createRunFiles": {"runID": "i", "uploadHeaders": [], "files": files},
                }
            }
        elif self.path.endswith("file_stream"):
            sent = json.loads(body).get("files", {}).get("wandb-history.jsonl", {})
            self.lines += sent.get("content", [])
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST  # noqa: N815


@contextmanager
def _sink() -> Iterator[tuple[str, list[str]]]:
    lines: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Sink", (_Sink,), {"lines": lines}))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", lines
    server.shutdown()
    server.server_close()


def test_wandb_sync_takes_the_mirror(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    history = [
        {"train/loss": 1.0 / (step + 1), "_step": step, "_timestamp": step, "_runtime": step} for step in range(7)
    ]
    folder = tmp_path / "offline-run-19700101_000000-abcd1234"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "wandb-summary.json").write_text("{}")
    write_run(folder / "run-abcd1234.wandb", OfflineRun("abcd1234", "p", "n", history=history, exit_code=0), "test")
    with _sink() as (address, lines):
        # a made-up key of the right length; the server is the one above
        told = {"WANDB_BASE_URL": address, "WANDB_API_KEY": "0" * 40, "HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "wandb", "sync", str(folder)],
            cwd=tmp_path,
            env=os.environ | {**QUIET, "WANDB_SILENT": "false"} | told,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert "Finished syncing" in done.stdout + done.stderr
    assert [json.loads(line)["train/loss"] for line in lines] == [row["train/loss"] for row in history]
