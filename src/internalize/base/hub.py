"""The base stage for a model from the Hugging Face hub: fetched once, on a machine with a network, at one commit.

Invariant: every file of the payload has the hash or size that the hub states for that commit, and `provenance.json`
says which; a repository without a commit is refused, because a branch may move between two fetches.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from internalize.base.stage import found
from internalize.errors import CorruptPayload, MissingPayload, StudyError, UserError
from internalize.files import digest, link, sha256_file, write_json

PROVENANCE = "provenance.json"
CACHE = ".cache"
LEFT_OUT = ("*.bin", "*.pth", "*.pt", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "original/*")
"""Weights in other formats than safetensors."""

Progress = Callable[[str], None]


def build(folder: Path, spec: Mapping[str, Any], inputs: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Writes the model folder and provenance.json.

    Args:
        spec: `repo` and `revision` (a commit, 40 hex digits); or also `folder`, where the files lie already, and
            `sha256`, the digest of their table.
        inputs: none are used.

    Returns:
        Facts: which, repo, revision, sha256 (of the table of files), files, bytes.

    Raises:
        StudyError: the study names no commit.
        UserError: the hub does not answer, or has no such commit.
        CorruptPayload: a file is not the one that the hub speaks of.
    """
    repo, revision = str(spec["repo"]), spec["revision"]
    if spec.get("folder") is not None:
        return _taken_over(folder, found(str(spec["folder"])), spec, progress)
    if revision is None:
        raise StudyError(
            "the base is not pinned to a commit",
            where="base.revision",
            expected="40 hex digits",
            fix=f"take the commit from the history of {repo} on the hub, and state it in the study file",
        )
    stated = _download(repo, revision, folder, progress)
    files = verified(folder, stated)
    write_json(folder / PROVENANCE, {"repo": repo, "revision": revision, "files": files})
    size = sum((folder / name).stat().st_size for name in files)
    progress(f"base: {repo} at {revision[:12]}, {len(files)} files, {size / 1e9:.1f} GB, hashes agree")
    return {
        "which": "hub",
        "repo": repo,
        "revision": revision,
        "sha256": digest(files),
        "files": len(files),
        "bytes": size,
    }


def _taken_over(folder: Path, source: Path, spec: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """The files of a folder, linked where that is possible.

    Raises:
        StudyError: the study does not pin them.
        MissingPayload: there is no such folder.
        CorruptPayload: they are others.
    """
    if not (source / "config.json").is_file():
        raise MissingPayload("no model folder here", where=str(source), expected="config.json, tokenizer and weights")
    names = sorted(path.name for path in source.iterdir() if path.is_file() and not _left_out(path.name))
    files = {name: sha256_file(source / name) for name in names if name != PROVENANCE}
    table = digest(files)
    if table != spec["sha256"]:
        kind = StudyError if spec["sha256"] is None else CorruptPayload
        raise kind(
            "the model folder is not the one that the study names",
            where=f"base.sha256, {source}",
            expected=str(spec["sha256"] or "a digest"),
            got=table,
            fix="state this digest in the study, or bring the right files",
        )
    for name in files:
        link(source / name, folder / name)
    write_json(folder / PROVENANCE, {"repo": spec["repo"], "revision": spec["revision"], "files": files})
    size = sum((folder / name).stat().st_size for name in files)
    progress(f"base: {source}, {len(files)} files, {size / 1e9:.1f} GB, hashes agree")
    known = {"repo": spec["repo"], "revision": spec["revision"], "sha256": table}
    return {"which": "folder", **known, "files": len(files), "bytes": size}


def verified(folder: Path, stated: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """SHA-256 of each file, after a check against what the hub states.

    Args:
        folder: the downloaded files.
        stated: file name -> `size` and, for large files, `sha256`.

    Raises:
        MissingPayload: a file is missing.
        CorruptPayload: a file differs.
    """
    files: dict[str, str] = {}
    for name, about in sorted(stated.items()):
        path = folder / name
        if not path.exists():
            raise MissingPayload("a file of the model was not downloaded", where=str(path), fix="run the job again")
        got = {"sha256": sha256_file(path), "size": path.stat().st_size}
        for key in ("size", "sha256"):
            if about.get(key) is not None and about[key] != got[key]:
                raise CorruptPayload(
                    "a file of the model is not the one that the hub speaks of",
                    where=str(path),
                    expected=f"{key} {about[key]}",
                    got=f"{key} {got[key]}",
                    fix="run the job again; the folder is thrown away",
                )
        files[name] = str(got["sha256"])
    return files


def _download(repo: str, revision: str, folder: Path, progress: Progress) -> dict[str, dict[str, Any]]:
    """Fetches the files; what the hub states about each."""
    try:
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
    except ImportError as error:
        raise UserError(
            "a base from the hub needs huggingface-hub", fix="pip install 'internalize[publish]'"
        ) from error
    try:
        info = HfApi().model_info(repo, revision=revision, files_metadata=True)
        if info.sha != revision:
            raise UserError("the hub resolves the commit to another", where="base.revision", got=str(info.sha))
        progress(f"base: fetching {repo} at {revision[:12]}")
        snapshot_download(repo, revision=revision, local_dir=folder, ignore_patterns=list(LEFT_OUT))
        shutil.rmtree(folder / CACHE, ignore_errors=True)  # the client's notes on the download: no part of the model
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise UserError("no such model on the hub", where="base", got=f"{repo} at {revision}") from error
    except (HfHubHTTPError, OSError) as error:
        raise UserError(
            "the hub does not answer",
            where=f"base: {repo}",
            got=str(error).splitlines()[0],
            fix="run on a machine with a network (a login node); HF_TOKEN for a gated model",
        ) from error
    return {
        file.rfilename: {"size": file.size, "sha256": file.lfs.sha256 if file.lfs else None}
        for file in info.siblings or []
        if (folder / file.rfilename).exists() or not _left_out(file.rfilename)
    }


def _left_out(name: str) -> bool:
    from fnmatch import fnmatch

    return any(fnmatch(name, pattern) for pattern in LEFT_OUT)
