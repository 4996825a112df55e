"""Publishing against a server that speaks the hub's API, with everything going wrong that can."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hub_server import Fault, HubServer, git_id, serving
from typer.testing import CliRunner

from internalize import cli
from internalize.archive.hub import CALLS, Addition, HuggingFace, Kind, Permanent, RemoteFile, Transient, judge
from internalize.archive.layout import MANIFEST, README, SUMS
from internalize.archive.manifest import Manifest, entry, write_manifests
from internalize.archive.publish import Outcome, Patience, Sizes, Upload, batches, check_limits, publish
from internalize.errors import UserError
from internalize.files import sha256_file
from internalize.seeds import rng

huggingface_hub = pytest.importorskip("huggingface_hub")

QUICK = Patience(tries=6, wait=0.01, most=0.05)
COMMIT = r"POST /api/datasets/me/small/commit"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No token and no cache of the user's."""
    monkeypatch.setenv("HF_TOKEN", "hf_not_a_real_one")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")


@pytest.fixture
def hub() -> Iterator[HubServer]:
    """A hub of this test's own."""
    with serving() as server:
        yield server


class Direct:
    """The hub without a process between: for tests in which only the server misbehaves."""

    def __init__(self, address: str) -> None:
        from huggingface_hub import HfApi

        self.api = HfApi(endpoint=address)

    def _call(self, name: str, *arguments: object) -> object:
        try:
            return CALLS[name](self.api, *arguments)
        except Exception as error:
            kind, text = judge(error)
            raise Transient(text) if kind == "transient" else Permanent(text) from error

    def create(self, repository: str, kind: Kind, private: bool) -> None:
        self._call("create", repository, kind, private)

    def files(self, repository: str, kind: Kind) -> dict[str, RemoteFile]:
        found = self._call("files", repository, kind)
        assert isinstance(found, dict)
        return found

    def commit(self, repository: str, kind: Kind, add: Sequence[Addition], delete: Sequence[str], message: str) -> None:
        self._call("commit", repository, kind, list(add), list(delete), message)


def folder(root: Path, small: int, large: int = 0) -> Path:
    """An archive of small files and one large one."""
    draw = rng("publish", small)
    manifest = Manifest(study="small", files={})
    for number in range(small):
        path = root / f"runs/r{number % 7}/file{number:04d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"number": {number}, "word": "{draw.randbytes(20).hex()}"}}\n')
    if large:
        (root / "large.bin").write_bytes(draw.randbytes(large))
    (root / README).write_text("---\nlicense: cc-by-4.0\n---\n# small\n")
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        name = path.relative_to(root).as_posix()
        manifest.files[name] = entry(sha256_file(path), path.stat().st_size, name, None)
    write_manifests(root, manifest)
    return root


def equal(hub: HubServer, kind: str, name: str, root: Path) -> bool:
    """Does the hub hold the folder, byte for byte?"""
    stored = hub.files(kind, name)
    local = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    return stored.keys() == local.keys() and all(
        one.sha256 == sha256_file(local[path]) if one.sha256 else one.git == git_id(local[path].read_bytes())
        for path, one in stored.items()
    )


def quiet(text: str) -> None:
    """No progress."""


def test_3000_small_files_and_a_large_one_through_every_fault(hub: HubServer, tmp_path: Path) -> None:
    root = folder(tmp_path / "small", 3000, 12_000_000)
    upload = Upload(root, "me/small", "dataset")
    hub.faults = [
        Fault("POST /api/repos/create", "500"),
        Fault("GET /api/datasets/me/small/tree", "500"),
        Fault("POST .*/preupload", "429", headers={"Retry-After": "0"}),
        Fault("PUT /objects/", "500"),
        Fault("PUT /objects/", "drop"),
        Fault(COMMIT, "429", headers={"Retry-After": "0"}),
        Fault(COMMIT, "500"),
        Fault(COMMIT, "drop"),
        Fault(COMMIT, "lost", after=1),
        Fault(COMMIT, "403", after=1, times=-1),
    ]
    with pytest.raises(Permanent, match="refused `commit`") as stopped:
        publish_quickly(upload, hub)
    assert "HTTP 403" in stopped.value.got
    assert "token" in stopped.value.fix
    there = dict(hub.files("dataset", "me/small"))
    assert 1000 <= len(there) < 3000, "what was sent before the refusal stays"
    assert MANIFEST not in there, "the manifest goes last: what has none is not whole"
    assert sum(COMMIT.split()[1] in one for one in hub.requests) < 12, "a refusal is not tried again"
    hub.faults = []
    outcome = publish_quickly(upload, hub)
    assert outcome.already_there == len(there)
    assert outcome.sent == 3000 + 4 - len(there)
    assert equal(hub, "dataset", "me/small", root)
    assert hub.published_twice() == []
    before = len(hub.commits)
    again = publish_quickly(upload, hub)
    assert (again.sent, again.commits, len(hub.commits)) == (0, 0, before)


def publish_quickly(upload: Upload, hub: HubServer) -> Outcome:
    """Publishes through the helper process, with a test's patience."""
    with HuggingFace(hub.address, seconds=60) as client:
        return publish(upload, client, quiet, QUICK, Sizes(files=600))


def test_a_call_that_hangs_is_ended_and_tried_again(hub: HubServer, tmp_path: Path) -> None:
    root = folder(tmp_path / "small", 5)
    hub.faults = [Fault(COMMIT, "hang")]
    with HuggingFace(hub.address, seconds=3, rate=1e9) as client:
        outcome = publish(Upload(root, "me/small", "dataset"), client, quiet, QUICK)
    assert outcome.retries >= 1
    assert "no answer" in outcome.errors[0]
    assert equal(hub, "dataset", "me/small", root)


@pytest.mark.parametrize("what", ["500", "429", "drop", "lost"])
def test_a_passing_fault_of_any_request_passes(what: str, hub: HubServer, tmp_path: Path) -> None:
    root = folder(tmp_path / "small", 12)
    (root / "gone.txt").write_text("x")
    client = Direct(hub.address)
    client.create("me/small", "dataset", False)
    hub.faults = [Fault(one, what) for one in ("/create", "/tree", COMMIT)]
    (root / "gone.txt").unlink()
    outcome = publish(Upload(root, "me/small", "dataset"), client, quiet, QUICK, Sizes(files=5))
    assert equal(hub, "dataset", "me/small", root)
    assert hub.published_twice() == []
    assert outcome.retries >= 1


def test_faults_that_do_not_pass_end_with_what_to_do(hub: HubServer, tmp_path: Path) -> None:
    hub.faults = [Fault(COMMIT, "500", times=-1)]
    with pytest.raises(UserError, match="failed 6 times") as stopped:
        publish(Upload(folder(tmp_path / "small", 3), "me/small", "dataset"), Direct(hub.address), quiet, QUICK)
    assert "again later" in stopped.value.fix


def test_a_changed_archive_replaces_and_deletes(hub: HubServer, tmp_path: Path) -> None:
    client = Direct(hub.address)
    publish(Upload(folder(tmp_path / "a", 10), "me/small", "dataset"), client, quiet, QUICK)
    hub.repositories["dataset", "me/small"][".gitattributes"] = hub.files("dataset", "me/small")[README]
    second = folder(tmp_path / "b", 6)
    outcome = publish(Upload(second, "me/small", "dataset"), client, quiet, QUICK)
    assert outcome.deleted == 4
    del hub.repositories["dataset", "me/small"][".gitattributes"]
    assert equal(hub, "dataset", "me/small", second)


def test_a_hub_that_holds_something_else_in_the_end_is_not_believed(hub: HubServer, tmp_path: Path) -> None:
    root = folder(tmp_path / "small", 3)

    class Lossy(Direct):
        def files(self, repository: str, kind: Kind) -> dict[str, RemoteFile]:
            return {p: f for p, f in super().files(repository, kind).items() if not p.endswith("file0001.json")}

    with pytest.raises(UserError, match="does not hold what was sent") as stopped:
        publish(Upload(root, "me/small", "dataset"), Lossy(hub.address), quiet, QUICK)
    assert "file0001.json is missing" in stopped.value.got


def test_batches_end_with_card_and_manifests() -> None:
    files = {f"f{number:02d}": ("0" * 64, 10) for number in range(25)}
    files |= dict.fromkeys((README, MANIFEST, SUMS), ("0" * 64, 10))
    made = batches(files, files, Sizes(files=10, bytes=1000))
    assert [len(one) for one in made] == [10, 10, 5, 3]
    assert set(made[-1]) == {README, MANIFEST, SUMS}
    assert [len(one) for one in batches(files, files, Sizes(files=10, bytes=40))][:2] == [4, 4]
    assert sorted(path for one in made for path in one) == sorted(files)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({f"d/{n}": ("", 1) for n in range(10_000)}, "files a folder"),
        ({f"{n % 90}/{n}": ("", 1) for n in range(100_001)}, "at most 100000 files"),
        ({"x.bin": ("", 50_000_000_000)}, "below 50000000000 bytes"),
    ],
)
def test_the_hubs_limits_are_held_before_anything_is_sent(files: dict[str, tuple[str, int]], words: str) -> None:
    with pytest.raises(UserError) as refused:
        check_limits(files, "archive")
    assert words in refused.value.expected


def kill_while_publishing(upload: Upload, address: str, after: float) -> None:
    """Publishes in a process of its own, and kills it."""

    def work() -> None:
        os.setpgid(0, 0)
        publish(upload, Direct(address), quiet, QUICK, Sizes(files=20))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(after)
    if process.is_alive() and process.pid is not None:
        os.kill(process.pid, signal.SIGKILL)
    process.join()


def test_killed_at_random_points_it_ends_right_and_nothing_is_published_twice(hub: HubServer, tmp_path: Path) -> None:
    draw = rng("kill", "publish")
    root = folder(tmp_path / "small", 200, 1_500_000)
    upload = Upload(root, "me/small", "dataset")
    client = Direct(hub.address)
    started = time.monotonic()
    publish(upload, client, quiet, QUICK, Sizes(files=20))
    whole = time.monotonic() - started
    for number in range(10):
        with serving() as fresh:
            kill_while_publishing(upload, fresh.address, whole * draw.random())
            kill_while_publishing(upload, fresh.address, whole * draw.random() / 2)
            publish(upload, Direct(fresh.address), quiet, QUICK, Sizes(files=20))
            assert equal(fresh, "dataset", "me/small", root), number
            assert fresh.published_twice() == [], number


def test_a_token_is_never_printed(
    hub: HubServer, archive: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    token = "hf" + "_" + "a1B2" * 9  # made up
    monkeypatch.setenv("HF_TOKEN", token)
    kind, text = judge(ConnectionError(f"the server says: no {token} here"))
    assert (kind, token in text, "***" in text) == ("transient", False, True)
    hub.faults = [Fault("/api/repos/create", "403", times=-1)]
    monkeypatch.chdir(archive)
    told = [run(".", "--dry-run"), run(".", "--to", hub.address)]
    assert "nothing was sent" in told[0][1]
    assert "HTTP 403" in told[1][2]
    assert token not in str(told)
    assert token not in "".join(capfd.readouterr())


# The command


def run(*words: str) -> tuple[int, str, str]:
    """The command: exit status, output, error."""
    done = CliRunner().invoke(cli.app, ["publish", *words])
    error = str(done.exception) if done.exception else ""
    return done.exit_code, done.stdout, error


def test_archive_and_models_go_to_the_hub_by_one_command(hub: HubServer, archive: Path) -> None:
    status, shown, _ = run(str(archive), "--dry-run")
    assert status == 0
    assert "dataset me/small" in shown
    assert "model me/small-recite-seed0-iter1-frozen-adam" in shown
    assert "nothing was sent" in shown
    assert hub.requests == []
    status, told, error = run(str(archive), "--to", hub.address)
    assert status == 0, error
    assert equal(hub, "dataset", "me/small", archive)
    (model,) = archive.with_name("models").iterdir()
    assert equal(hub, "model", f"me/{model.name}", model)
    assert told.count("the hub holds what we hold") == 2
    status, told, _ = run(str(archive), "--to", hub.address, "--dataset", "other/name")
    assert status == 0
    assert equal(hub, "dataset", "other/name", archive)


def test_what_is_not_whole_or_holds_a_secret_is_not_sent(hub: HubServer, archive: Path) -> None:
    (archive / "extra.txt").write_text("x")
    status, _, error = run(str(archive), "--to", hub.address)
    assert status != 0
    assert "not whole" in error
    (archive / "extra.txt").unlink()
    from internalize.archive.manifest import read_manifest

    manifest = read_manifest(archive)
    path = archive / "state/log.md"
    path.unlink()
    path.write_text("the key is hf_" + "a1B2" * 9 + " and the folder /home/someone/study\n")
    manifest.files["state/log.md"] = entry(sha256_file(path), path.stat().st_size, "state/log.md", None)
    write_manifests(archive, manifest)
    status, shown, _ = run(str(archive), "--dry-run")
    assert "archive/state/log.md holds a Hugging Face token" in shown
    assert "a1B2" not in shown
    status, _, error = run(str(archive), "--to", hub.address)
    assert status != 0
    assert "secret" in error
    assert "a home folder" in error
    assert hub.requests == []
    status, _, error = run(str(archive), "--to", hub.address, "--allow", "state/log.md")
    assert status == 0, error


def test_the_command_says_what_it_needs(archive: Path, tmp_path: Path) -> None:
    assert "either --dry-run or --to hub" in run(str(archive))[2]
    assert "no archive here" in run(str(tmp_path), "--dry-run", "--dataset", "me/x")[2]
    assert "no name" in run(str(archive), "--dry-run", "--dataset", "small")[2]


def test_only_the_archives_own_models_go_along_and_only_whole(hub: HubServer, archive: Path) -> None:
    models = archive.with_name("models")
    (model,) = models.iterdir()
    shutil.copytree(model, models / "somebody-elses")
    assert "somebody-elses" not in run(str(archive), "--dry-run")[1]
    (model / "config.json").unlink()
    status, _, error = run(str(archive), "--to", hub.address)
    assert status != 0
    assert f"{model.name}/config.json: missing" in error
    shutil.rmtree(model)
    assert "its model repository is not here" in run(str(archive), "--to", hub.address)[2]
    assert hub.requests == []
