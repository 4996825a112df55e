from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from internalize.files import write_jsonl
from internalize.knowledge.atoms import Atom, Provenance, merge

LIT = {"op": "eq", "probe": "lamp", "value": True}


def test_the_hash_is_of_the_claim_not_of_its_words(claim: Callable[..., Atom]) -> None:
    one, two = claim("one", expect=[LIT]), claim("two", expect=[LIT], effort=3)
    assert one.hash == two.hash
    assert one.hash != claim("one", expect=[{**LIT, "value": False}]).hash
    assert one.hash != claim("one", expect=[LIT], do=["press"]).hash
    assert one.hash != claim("one", expect=[LIT], levels=(1, 2)).hash
    assert one.hash != claim("one", expect=[LIT], game="other").hash


def test_merge_keeps_one_claim_and_all_its_origins(claim: Callable[..., Atom]) -> None:
    one, other = claim("one", expect=[LIT]), claim("other", expect=[{**LIT, "value": False}])
    seen = Provenance.of("exploration", "act 3", [claim("parent", expect=[LIT])])
    again = claim("again", expect=[LIT]).model_copy(update={"provenance": seen})
    merged = merge([one, other, again, one])
    assert [atom.id for atom in merged] == [one.id, other.id]
    assert [origin.origin for origin in merged[0].provenance.origins] == ["generator", "exploration"]
    assert merged[0].provenance.parents == ["lamp/test/parent"]


def test_atoms_come_back_from_their_file(tmp_path: Path, claim: Callable[..., Atom], read_atoms: Any) -> None:
    atoms = [claim("one", expect=[LIT]), claim("two", expect=[LIT], do=["press"])]
    write_jsonl(tmp_path / "atoms.jsonl", [atom.model_dump(mode="json") for atom in atoms])
    assert read_atoms(tmp_path / "atoms.jsonl") == atoms
