"""Commands about checkpoints: list, prune, bring back, convert, replay, exchange with slime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from internalize.cli_common import StoreOption, say
from internalize.errors import UserError
from internalize.threads import one_thread

if TYPE_CHECKING:
    from internalize.arms.chain import Chain

ArmArgument = Annotated[str, typer.Argument(help="name of the arm")]
SeedOption = Annotated[int, typer.Option(help="seed of the arm")]
StepsOption = Annotated[list[int] | None, typer.Option("--step", help="a step, repeated; default: all")]
ResultsOption = Annotated[Path, typer.Option(help="results folder of the study")]
VerifyOption = Annotated[bool, typer.Option("--verify", help="read every file and compare its hash")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    for command in (checkpoints, prune, rematerialise, replay, convert):
        app.command()(command)
    app.command("slime-export")(slime_export)
    app.command("slime-import")(slime_import)


def checkpoints(
    folder: Annotated[Path | None, typer.Argument(help="a folder of iter_* folders; default: the study's")] = None,
    results: ResultsOption = Path("results"),
    store: StoreOption = Path("store"),
    verify: VerifyOption = False,
) -> None:
    """List checkpoints, complete or not and why not; writes checkpoints.md and checkpoints.json below --results."""
    from internalize.checkpoints.inventory import inspect_root, markdown, take_inventory, write_inventory
    from internalize.store import Store

    if folder is not None:
        rows = inspect_root(folder, verify)
        if not rows:
            raise UserError("no checkpoint here", where=str(folder), expected="folders called iter_0000000, ...")
        for row in rows:
            why = f": {row['why']}" if row["why"] else ""
            typer.echo(f"iter {row['iteration']}: {row['state']}{why} ({row['files']} files, {row['bytes']} bytes)")
        return
    found, others = take_inventory(results, Store(store), verify)
    write_inventory(results, found, others)
    typer.echo(markdown(found, others))
    typer.echo(f"written: {results / 'checkpoints.md'}, {results / 'checkpoints.json'}")


def prune(
    study: Annotated[Path, typer.Option(help="study file; its `retention` says what stays")] = Path(
        "config/bundled.yaml"
    ),
    set: Annotated[list[str] | None, typer.Option("--set", help="override such as retention.keep_last=1")] = None,
    results: ResultsOption = Path("results"),
    store: StoreOption = Path("store"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be deleted, delete nothing")] = False,
) -> None:
    """Delete checkpoints that the study's `retention` lets go; receipts, metrics, episodes and batches stay."""
    from internalize.checkpoints import retention
    from internalize.checkpoints.inventory import step_receipts
    from internalize.store import Store
    from internalize.study import load_study
    from internalize.workflow import Plan

    loaded = load_study(study, set=set or ())
    if loaded.retention is None:
        raise UserError(
            "the study keeps all checkpoints",
            where=f"{study}: retention",
            fix="add `retention: {keep_last: 2, keep_every: 5, keep_published: true}`, or --set retention.keep_last=2",
        )
    plan = Plan(loaded, Path.cwd())
    kept = Store(store)
    decisions = retention.decide(loaded.retention, results, kept, plan.published())
    if not dry_run:
        decisions = retention.prune(decisions, kept, step_receipts(results))
    freed = 0
    for decision in decisions:
        row = decision.row
        place = f"{row.arm} seed {row.seed} step {row.step}"
        if decision.keep:
            typer.echo(f"keep   {place}: {decision.keep}")
        else:
            freed += row.bytes
            start = f"step {decision.from_step}" if decision.from_step >= 0 else "the base"
            typer.echo(f"{'would delete' if dry_run else 'delete'} {place}: {row.bytes} bytes; again from {start}")
    typer.echo(f"{freed} bytes {'would be ' if dry_run else ''}freed")


def rematerialise(
    arm: ArmArgument,
    seed: SeedOption = 0,
    step: StepsOption = None,
    results: ResultsOption = Path("results"),
    store: StoreOption = Path("store"),
) -> None:
    """Bring pruned checkpoints back: train again on the recorded batches; the result must have the recorded hashes."""
    one_thread()
    from internalize.arms.rematerialise import is_pruned
    from internalize.arms.rematerialise import rematerialise as bring_back

    chain = _chain(results, store, arm, seed)
    steps = step or [number for number in chain.receipts if is_pruned(chain, number)]
    for number in steps:
        bring_back(chain, number, say)
        typer.echo(f"step {number} is back, hash by hash")
    if not steps:
        typer.echo("no checkpoint of this arm and seed was pruned")


def replay(
    arm: ArmArgument,
    seed: SeedOption = 0,
    step: StepsOption = None,
    tolerance: Annotated[
        float, typer.Option(help="greatest difference relative to a tensor's largest entry; 0: bit for bit", min=0)
    ] = 0.0,
    results: ResultsOption = Path("results"),
    store: StoreOption = Path("store"),
) -> None:
    """Train steps again from their dumps and compare with what was committed; exit 1 when a step differs."""
    one_thread()
    from internalize.arms.replay import Replay

    chain = _chain(results, store, arm, seed)
    steps = step or [number for number, receipt in chain.receipts.items() if not receipt.facts.get("passed_through")]
    failed = 0
    with Replay(chain, steps[0]) as again:
        for number in steps:
            outcome = again.compare(number, tolerance)
            verdict = "equal, bit for bit" if outcome.equal else "DIFFERS"
            if outcome.within and not outcome.equal:
                verdict = f"within {tolerance:g}"
            size = f", {outcome.largest:.2e}" if outcome.largest is not None else ""
            typer.echo(f"step {number} ({outcome.phase}): {verdict}{size}{' ' + outcome.what if outcome.what else ''}")
            failed += not outcome.within
    if failed:
        raise typer.Exit(1)


def convert(
    source: Annotated[Path, typer.Option("--from", help="iter_* folder or its root, or a Hugging Face model folder")],
    target: Annotated[Path, typer.Option("--to", help="folder to make; it must not be there")],
    origin: Annotated[
        Path | None,
        typer.Option(help="model folder that the run started from; needed to convert to Hugging Face"),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="bfloat16, float16, float32 or keep; default: bfloat16 to HF, keep from HF")
    ] = None,
    shard_gb: Annotated[float, typer.Option(help="greatest size of a weight file, GB", min=0.001)] = 5.0,
) -> None:
    """Convert a torch_dist checkpoint to a Hugging Face model folder, or a model folder to a checkpoint.

    A conversion that was killed goes on where it was when it is started again.
    """
    from internalize.checkpoints import layout, model_folder
    from internalize.checkpoints.resumable import folder_for

    if dtype is not None and dtype not in ("bfloat16", "float16", "float32", "keep"):
        raise UserError("unknown --dtype", got=dtype, expected="bfloat16, float16, float32 or keep")
    kind: Any = dtype
    if (source / "config.json").is_file():
        iteration = model_folder.write_root(source, target, kind or "keep", say)
        typer.echo(f"{target}: iteration {iteration}, ready to train from")
        return
    root = source.parent if layout.ITERATION.fullmatch(source.name) else source
    if origin is None:
        raise UserError(
            "the model folder that the run started from is not named",
            where="--origin",
            expected="a folder with config.json and tokenizer",
            fix="for a step of a study: the store entry of its base; for slime's runs: the --hf-checkpoint",
        )
    match = layout.ITERATION.fullmatch(source.name)
    iteration = int(match[1]) if match else layout.read_tracker(source)
    with folder_for(target) as work:
        facts = model_folder.write_model(
            root, iteration, origin, work, kind or "bfloat16", int(shard_gb * 1e9), say, need_cursor=False
        )
    typer.echo(
        "{target}: {tensors} tensors, {parameters} parameters, {bytes} bytes of {dtype}".format(target=target, **facts)
    )


def slime_export(
    arm: ArmArgument,
    to: Annotated[Path, typer.Option(help="file to write; slime reads it with --load-debug-rollout-data")],
    seed: SeedOption = 0,
    step: Annotated[int, typer.Option(help="step")] = 0,
    results: ResultsOption = Path("results"),
    store: StoreOption = Path("store"),
) -> None:
    """Write the batches of a step in slime's debug-rollout format."""
    from internalize.files import read_jsonl
    from internalize.rollout.dump import load_dump
    from internalize.rollout.slime import save_slime, to_slime

    chain = _chain(results, store, arm, seed)
    entry = chain.store.open(chain.receipt(step)).payload
    rows = list(read_jsonl(entry / "episodes.jsonl")) if (entry / "episodes.jsonl").exists() else []
    returns = {row["plan"]["id"]: row["returned"] for row in rows}
    groups = {row["plan"]["id"]: row["plan"]["group"] for row in rows}
    payload = to_slime(load_dump(entry / "rollout" / f"{step}.pt"), returns, groups)
    save_slime(to, payload)
    typer.echo(f"{to}: rollout {payload['rollout_id']}, {len(payload['samples'])} samples")


def slime_import(
    source: Annotated[Path, typer.Option("--from", help="file that slime wrote with --save-debug-rollout-data")],
    to: Annotated[Path, typer.Option(help="dump to write")],
    reward_key: Annotated[str | None, typer.Option(help="which reward, where slime stored several")] = None,
    executions_a_step: Annotated[int | None, typer.Option(help="slime's global batch size", min=1)] = None,
) -> None:
    """Turn a debug-rollout file of slime into a dump of training batches."""
    from internalize.rollout.dump import save_dump
    from internalize.rollout.slime import from_slime, load_slime

    dump = from_slime(load_slime(source), reward_key, executions_a_step)
    save_dump(to, dump.rollout_id, dump.batches, dump.meta)
    typer.echo(f"{to}: rollout {dump.rollout_id}, {len(dump.batches)} batches, {sum(map(len, dump.batches))} sequences")


def _chain(results: Path, store: Path, arm: str, seed: int) -> Chain:
    from internalize.arms.chain import Chain
    from internalize.store import Store

    return Chain(results, Store(store), arm, seed)
