"""Kill -9 while a step is saved, at 20 points: the step before stays loadable, nothing half is ever listed complete.

One process imports Megatron once and forks the writers; each writer saves and commits with the calls that a segment
makes, and is killed before its n-th operation on a file, or after a random time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import internalize

POINTS = 20

SCRIPT = r'''
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[2])
from training_examples import CONFIG, ce_sequence, random_weights
from internalize.checkpoints import layout
from internalize.checkpoints.inventory import take_inventory
from internalize.checkpoints.torch_dist import read_hf
from internalize.files import write_jsonl
from internalize.receipts import write_receipt
from internalize.rollout.dump import save_dump
from internalize.store import Store
from internalize.train.losses import LossSpec
from internalize.train.trainer import Trainer

root, points = Path(sys.argv[1]), int(sys.argv[3])
store = Store(root / "store")
batch = [ce_sequence(np.random.default_rng(0), 12)]

def train(trainer):
    return trainer.train_step(batch, LossSpec(), 1e-2).loss

def save(trainer, step):
    spec = {"step": step, "phase": "sft"}
    key = store.key("step", spec, "code", {})
    with store.lease("step", key):
        folder = store.partial("step", key)
        write_jsonl(folder / "metrics.jsonl", [{"step": step}])
        save_dump(folder / "rollout" / f"{step}.pt", step, [batch])
        trainer.save(layout.iteration_folder(folder, step), iteration=step)
        layout.write_cursor(folder, step, {"next_step": step + 1})
        layout.write_tracker(folder, step)
        receipt = store.commit(folder, stage="step", name="x", key=key, spec=spec, code="code", parents={},
                               facts={"phase": "sft"}, status="done", run={})
    write_receipt(root / f"results/receipts/arms/a/seed0/steps0000-0001/step{step:04d}.json", receipt)
    return receipt

def child(work):
    """Runs work in a fork; its status and what it returned."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.write(write, json.dumps(work()).encode())
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    return status, json.loads(said) if said else None

WATCHED = {"open", "os.rename", "os.mkdir", "os.remove", "shutil.rmtree", "os.listdir", "os.scandir"}
seen = 0
limit = None

def hook(event, args):
    global seen
    if limit is not None and event in WATCHED:
        seen += 1
        if seen == limit:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)

def first():
    with Trainer(CONFIG) as trainer:
        trainer.load_hf(random_weights(CONFIG, 0))
        train(trainer)
        save(trainer, 0)
        return train(trainer)

def second(kill_at=-1, kill_after=None):
    global limit
    with Trainer(CONFIG) as trainer:
        trainer.load(layout.iteration_folder(store.root / zero, 0))
        loss = train(trainer)
        start = time.perf_counter()
        limit = kill_at
        if kill_after is not None:
            signal.signal(signal.SIGALRM, lambda *a: os.kill(os.getpid(), signal.SIGKILL))
            signal.setitimer(signal.ITIMER_REAL, kill_after)
        save(trainer, 1)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return [loss, seen, time.perf_counter() - start]

expected = first()  # in this process: its first trainer costs more than all that follow
zero = store.folder("step", store.key("step", {"step": 0, "phase": "sft"}, "code", {})).relative_to(store.root)
one = store.folder("step", store.key("step", {"step": 1, "phase": "sft"}, "code", {}))
weights = read_hf(layout.iteration_folder(store.root / zero, 0), CONFIG)

def clean():
    import shutil
    for path in (one, one.with_name(one.name + ".partial")):
        shutil.rmtree(path, ignore_errors=True)
    (root / "results/receipts/arms/a/seed0/steps0000-0001/step0001.json").unlink(missing_ok=True)

status, (loss, operations, seconds) = child(second)
assert status == 0 and loss == expected
report = {"operations": operations, "killed": 0, "states": []}
clean()
draw = random.Random(4)
ways = [{"kill_at": n} for n in sorted(draw.sample(range(1, operations + 1), points * 3 // 4))]
ways += [{"kill_after": draw.uniform(0.0005, seconds)} for _ in range(points - len(ways))]
for way in ways:
    status, _ = child(lambda: second(**way))
    report["killed"] += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    rows, others = take_inventory(root / "results", store, verify=True)
    states = {row.step: row.state for row in rows}
    assert states[0] == "complete", (way, rows)
    again = read_hf(layout.iteration_folder(store.root / zero, 0), CONFIG)
    assert all((again[name] == tensor).all() for name, tensor in weights.items())
    if one.exists():  # it appeared: then it is whole
        receipt = store.find("step", store.key("step", {"step": 1, "phase": "sft"}, "code", {}))
        store.open(receipt)
        assert layout.read_tracker(one) == 1
        read_hf(layout.iteration_folder(one, 1), CONFIG)
    else:
        assert states.get(1) is None
        assert all(other.what.startswith("unfinished") for other in others), others
    report["states"].append("whole" if one.exists() else "absent")
    if len(report["states"]) % 5 == 0:  # whoever comes next finishes the step, whatever lies there
        status, (loss, *_) = child(second)
        assert status == 0 and loss == expected and one.exists()
        clean()
    elif one.exists():
        clean()
print(json.dumps(report))
'''


def test_a_save_killed_anywhere_leaves_the_step_before_and_nothing_half(tmp_path: Path) -> None:
    examples = Path(__file__).parents[1] / "train"
    environment = {**os.environ, "PYTHONPATH": str(Path(internalize.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path), str(examples), str(POINTS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["operations"] > 30, "the hook must see the save"
    assert report["killed"] >= POINTS * 3 // 4
    assert "absent" in report["states"]
