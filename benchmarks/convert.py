"""Conversion of a 1 GB checkpoint against plainly reading, writing and fsyncing the same bytes, in one run.

    python benchmarks/convert.py [--rounds 3] [--layers 8] [--folder /tmp]

The checkpoint is bf16 in the layout that TP2 x PP2 leaves (four shard files, matrices cut by rows or columns). Each
measurement is a process of its own: seconds (wall and CPU) are of the work, without the import of its module but with
what that imports later (HF -> torch_dist: 0.6 s for the record classes of torch.distributed.checkpoint); memory is the
process's peak, torch (about 220 MB) included. Files were just written or read, so the page cache is warm for both sides
alike.

Measured: torch_dist -> HF keeping bf16 (the claim: >= 0.7 x plain, peak < largest tensor + 400 MB), torch_dist -> HF
from the same tensors as fp32, and HF -> torch_dist.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": 38400,
    "hidden_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 6144,
    "tie_word_embeddings": False,
}
TP, PP = 2, 2
COLUMN_CUT = ("linear_proj.weight", "linear_fc2.weight")


def make(folder: Path, dtype_name: str) -> None:
    """Writes the checkpoint, tensor by tensor."""
    import torch
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )

    from internalize.checkpoints.hf_names import entries

    dtype = getattr(torch, dtype_name)
    generator = torch.Generator().manual_seed(0)
    folder.mkdir(parents=True)
    metadata = Metadata({}, storage_data={})
    layers = CONFIG["num_hidden_layers"]
    shards = {(p, t): (folder / f"__{p * TP + t}_0.distcp").open("wb") for p in range(PP) for t in range(TP)}
    for entry in entries(CONFIG):
        shape = (sum(s[0] for s in entry.shapes), *entry.shapes[0][1:])
        tensor = torch.randn(shape, generator=generator).to(dtype)
        layered = entry.layer is not None
        full = torch.Size((layers, *shape) if layered else shape)
        kept = metadata.state_dict_metadata.setdefault(
            entry.stored, TensorStorageMetadata(TensorProperties(dtype=dtype), full, [])
        )
        stage = entry.layer * PP // layers if layered else (0 if entry.stored.startswith("embedding") else PP - 1)
        axis = 1 if entry.stored.endswith(COLUMN_CUT) else 0
        start = 0
        for rank, piece in enumerate(tensor.chunk(TP, axis) if len(shape) == 2 else [tensor]):
            offsets = [0] * len(shape)
            offsets[axis] = start
            start += piece.shape[axis]
            where = torch.Size([entry.layer, *offsets] if layered else offsets)
            data = piece.clone(memory_format=torch.contiguous_format)
            data = data.unsqueeze(0) if layered else data
            handle = shards[stage, rank]
            first = handle.tell()
            torch.save(data, handle)
            place = _StorageInfo(Path(handle.name).name, first, handle.tell() - first)
            metadata.storage_data[MetadataIndex(entry.stored, where)] = place
            kept.chunks.append(ChunkStorageMetadata(where, data.shape))
    for handle in shards.values():
        handle.flush()
        os.fsync(handle.fileno())
        handle.close()
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    torch.save({"iteration": 1, "args": {}}, folder / "common.pt")
    (folder / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist"}))


def plain(source: Path, target: Path) -> None:
    """Reads every file of `source` and writes it to `target`, fsynced, in blocks of 1 MiB."""
    target.mkdir()
    for path in sorted(source.iterdir()):
        with path.open("rb") as read, (target / path.name).open("wb") as write:
            while block := read.read(1 << 20):
                write.write(block)
            write.flush()
            os.fsync(write.fileno())


def work(what: str, source: Path, target: Path) -> None:
    """One measurement, in this process; prints seconds and peak memory."""
    if what == "make":
        start, before = time.perf_counter(), time.process_time()
        make(source, str(target.name))
    elif what == "plain":
        start, before = time.perf_counter(), time.process_time()
        plain(source, target)
    elif what == "to_hf":
        from internalize.checkpoints.to_hf import write_weights

        start, before = time.perf_counter(), time.process_time()
        write_weights(source, CONFIG, target, "bfloat16", shard_bytes=1 << 28)
    else:
        from internalize.checkpoints.from_hf import write_checkpoint

        start, before = time.perf_counter(), time.process_time()
        write_checkpoint(source, target, 0, {}, file_bytes=1 << 28)
    seconds, cpu = time.perf_counter() - start, time.process_time() - before
    status = Path("/proc/self/status").read_text()  # getrusage would count the parent's peak before the exec
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024
    print(json.dumps({"s": seconds, "cpu": cpu, "peak": peak}))


def measure(what: str, source: Path, target: Path) -> dict[str, float]:
    """The same in a fresh process; what it wrote is removed."""
    command = [sys.executable, __file__, "--work", what, str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if what in ("plain", "from_hf"):
        shutil.rmtree(target)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Prints a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=CONFIG["num_hidden_layers"])
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--work", nargs=3, metavar=("WHAT", "FROM", "TO"))
    arguments = parser.parse_args()
    CONFIG["num_hidden_layers"] = int(os.environ.setdefault("CONVERT_LAYERS", str(arguments.layers)))
    if arguments.work:
        what, source, target = arguments.work
        work(what, Path(source), Path(target))
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    largest = CONFIG["vocab_size"] * CONFIG["hidden_size"] * 2
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        root = Path(scratch)
        for name, dtype in (("bf16", "bfloat16"), ("fp32", "float32")):
            measure("make", root / name, Path(dtype))
        size = sum(path.stat().st_size for path in (root / "bf16").glob("*.distcp"))
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in ("plain", "keep", "cast", "from_hf")}
        for _ in range(arguments.rounds):
            shutil.rmtree(root / "hf", ignore_errors=True)
            runs["plain"].append(measure("plain", root / "bf16", root / "copy"))
            runs["keep"].append(measure("to_hf", root / "bf16", root / "hf"))
            (root / "hf" / "config.json").write_text(json.dumps(CONFIG))
            runs["plain"].append(measure("plain", root / "bf16", root / "copy"))
            runs["from_hf"].append(measure("from_hf", root / "hf", root / "back"))
            shutil.rmtree(root / "hf")
            runs["cast"].append(measure("to_hf", root / "fp32", root / "hf"))
    base = statistics.median(run["s"] for run in runs["plain"])
    best = min(run["s"] for run in runs["plain"])
    print(f"{size / 1e6:.0f} MB of bf16 tensors, TP{TP} x PP{PP}; largest tensor {largest / 1e6:.0f} MB")
    print(f"{'':34}{'median s':>9}{'MB/s':>7}{'x plain':>9}{'best s':>8}{'x plain':>9}{'CPU s':>7}{'peak MB':>9}")
    titles = {
        "plain": "read + write + fsync",
        "keep": "torch_dist bf16 -> HF bf16",
        "cast": "torch_dist fp32 -> HF bf16",
        "from_hf": "HF bf16 -> torch_dist",
    }
    for name, found in runs.items():
        seconds = statistics.median(run["s"] for run in found)
        cpu, peak = statistics.median(run["cpu"] for run in found), max(run["peak"] for run in found)
        least = min(run["s"] for run in found)
        speed = f"{size / 1e6 / seconds:7.0f}{base / seconds:9.2f}{least:8.2f}{best / least:9.2f}"
        print(f"{titles[name]:34}{seconds:9.2f}{speed}{cpu:7.2f}{peak / 1e6:9.0f}")
    peak = max(run["peak"] for name in ("keep", "cast", "from_hf") for run in runs[name])
    print(f"peak memory - largest tensor: {(peak - largest) / 1e6:.0f} MB (claim: below 400)")


if __name__ == "__main__":
    main()
