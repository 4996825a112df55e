"""The archive against the tools that everyone has: hashing against openssl, packing against tar and zstd.

Builds a synthetic archive (JSON lines, a share of it incompressible) of a given size, then measures, in turn and in one
run, so that a busy machine burdens both sides alike:

- `hash_files` on N threads, against `openssl dgst -sha256` over the same files, one process a thread;
- `pack_tree` on N threads, against `tar | zstd -TN` at the same level;
- peak memory of each of ours (in a process of its own), and the time a file at a quarter of the files.

    python benchmarks/archive.py --folder /tmp/bench --gigabytes 5 --files 20000

Ratios are the claim, the best of some rounds on both sides; on a busy machine the clock measures the others, so CPU
seconds stand beside it. The pages are read once before (a warm page cache for all).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from internalize.archive.manifest import hash_files
from internalize.archive.tarzst import pack_tree
from internalize.seeds import rng

WORDS = 4000
RANDOM_SHARE = 0.3
"""Of each file: log-probs and the like do not compress."""


def build(folder: Path, total: int, files: int) -> None:
    """`files` files in folders of 20, of sizes between a quarter of and four times the mean."""
    draw = rng("archive benchmark", files)
    words = [draw.randbytes(draw.randrange(2, 9)).hex() for _ in range(WORDS)]
    text = "".join(
        json.dumps({"tool": "act", "words": [draw.choice(words) for _ in range(12)], "p": draw.random()}) + "\n"
        for _ in range(20_000)
    ).encode()
    noise = draw.randbytes(8 << 20)
    mean = total / files
    for number in range(files):
        size = int(mean * (0.25 + 1.5 * draw.random()))
        path = folder / f"step{number // 2000:04d}-ep{number // 20:05d}" / f"part{number % 20:02d}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            left = int(size * (1 - RANDOM_SHARE))
            while left > 0:
                at = draw.randrange(len(text) // 2)
                out.write(text[at : at + left])
                left -= len(text) - at
            at = draw.randrange(len(noise) // 2)
            out.write(noise[at : at + int(size * RANDOM_SHARE)])


@dataclass(frozen=True)
class Cost:
    """What an action took."""

    wall: float
    cpu: float
    """Of this process and its children."""

    def over(self, other: Cost) -> str:
        """The other's cost over ours: above 1 we are faster."""
        return f"{other.wall / self.wall:.2f} by the clock, {other.cpu / self.cpu:.2f} by CPU seconds"


def timed(action: Callable[[], object]) -> Cost:
    """Wall and CPU seconds."""
    start = time.perf_counter(), _cpu()
    action()
    return Cost(time.perf_counter() - start[0], _cpu() - start[1])


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def best(costs: list[Cost]) -> Cost:
    """The least wall and the least CPU seconds: what disturbs a measurement only adds."""
    return Cost(min(one.wall for one in costs), min(one.cpu for one in costs))


def openssl(files: list[Path], threads: int) -> None:
    """`openssl dgst -sha256` over the files, shared out to as many processes."""
    running = [
        subprocess.Popen(
            ["xargs", "-0", "openssl", "dgst", "-sha256"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        for _ in range(threads)
    ]
    for number, one in enumerate(running):
        assert one.stdin is not None
        one.stdin.write(b"\0".join(os.fsencode(path) for path in files[number::threads]))
        one.stdin.close()
    for one in running:
        assert one.wait() == 0


def tar_zstd(folder: Path, target: Path, level: int, threads: int) -> None:
    """`tar | zstd`."""
    command = f"tar --sort=name -cf - -C {folder} . | zstd -q -f -T{threads} -{level} -o {target}"
    subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True)


def peak_memory(code: str) -> int:
    """Peak memory (MiB) of a Python process that runs `code`."""
    told = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    done = subprocess.run([sys.executable, "-c", f"{code}; {told}"], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def main() -> None:
    """The benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="scratch folder; it is filled and emptied again")
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    root = wanted.folder / "tree"
    shutil.rmtree(wanted.folder, ignore_errors=True)
    build(root, int(wanted.gigabytes * 1e9), wanted.files)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    total = sum(path.stat().st_size for path in files)
    print(f"{len(files)} files, {total / 1e9:.2f} GB, {wanted.threads} threads, level {wanted.level}")
    hash_files(files, wanted.threads)  # warms the page cache
    quarter = files[: len(files) // 4]
    share = sum(path.stat().st_size for path in quarter) / total
    ours, theirs = wanted.folder / "ours.tar.zst", wanted.folder / "theirs.tar.zst"
    actions: dict[str, Callable[[], object]] = {
        "hash": lambda: hash_files(files, wanted.threads),
        "openssl": lambda: openssl(files, wanted.threads),
        "pack": lambda: pack_tree(root, ours, wanted.level, wanted.threads),
        "tar | zstd": lambda: tar_zstd(root, theirs, wanted.level, wanted.threads),
        "hash a quarter": lambda: hash_files(quarter, wanted.threads),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in actions}
    for _ in range(wanted.rounds):
        for name, action in actions.items():
            costs[name].append(timed(action))
    least = {name: best(found) for name, found in costs.items()}
    for name, cost in least.items():
        size = total * share if "quarter" in name else total
        print(f"{name}: {size / cost.wall / 1e6:.0f} MB/s by the clock, {size / cost.cpu / 1e6:.0f} MB a CPU second")
    print(f"hashing against openssl: {least['hash'].over(least['openssl'])} (want >= 0.9)")
    print(f"packing against tar | zstd: {least['pack'].over(least['tar | zstd'])} (want >= 0.9)")
    sizes = ours.stat().st_size, theirs.stat().st_size
    print(f"packed: {sizes[0] / 1e6:.0f} MB, tar | zstd {sizes[1] / 1e6:.0f} MB")
    growth = least["hash"].cpu * share / least["hash a quarter"].cpu
    print(f"CPU seconds a byte, all files / a quarter of them: {growth:.2f} (1 is linear)")
    start = "from pathlib import Path; "
    memory = {
        "hashing": start
        + "from internalize.archive.manifest import hash_files; "
        + f"hash_files(sorted(p for p in Path({str(root)!r}).rglob('*') if p.is_file()), {wanted.threads})",
        "packing": start
        + "from internalize.archive.tarzst import pack_tree; "
        + f"pack_tree(Path({str(root)!r}), Path({str(ours)!r}), {wanted.level}, {wanted.threads})",
    }
    for name, code in memory.items():
        print(f"memory, {name}: {peak_memory(code)} MiB (want < 500)")
    print(f"memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
    shutil.rmtree(wanted.folder)


if __name__ == "__main__":
    main()
