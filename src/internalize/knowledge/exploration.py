"""Candidates from play: random episodes are watched, and what always happened in them is proposed as a claim.

Invariant: only what a player sees goes in (probes around legal acts, from `Bench`); many proposals are false,
because few episodes were watched, and it is the trials that say which. Nothing here knows what a word means.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from internalize.files import canonical_json
from internalize.knowledge.atoms import Atom, Kind, Provenance
from internalize.knowledge.bench import Bench, Spot
from internalize.knowledge.dsl import Experiment
from internalize.knowledge.families import Draft, Family, Step, Terms, say
from internalize.knowledge.ops import Changed, Condition, Eq, Expect, In, Null, Otherwise, Shift, Unchanged
from internalize.seeds import derive, rng

#: Probes that every state has beside those of the game; claims about them are left to `deadline` and
#: `implies`.
COMMON = frozenset({"level", "budget", "acts"})

#: Times a call must have been seen before "it never changes this" is worth a trial.
MIN_SEEN = 3


def explore(bench: Bench, episodes: int, seed: int) -> list[Step]:
    """The steps of `episodes` random episodes, levels in turn, each played to its end."""
    steps = []
    levels = bench.game.levels
    for episode in range(episodes):
        draw = rng("knowledge", "exploration", seed, episode)
        level = levels[episode % len(levels)]
        spot = bench.start(level, derive("knowledge", "exploration", seed, "start", episode) % (1 << 30))
        while not spot.state.done:
            word = draw.choice(bench.words)
            after = bench.step(spot, word)
            if after is None:
                break
            steps.append(Step(spot, word, after, f"episode {episode}, act {len(after.actions)}"))
            spot = after
    return steps


class Explorer:
    """Turns watched steps into candidates. Values that were seen, and only they, fill the slots of its
    families."""

    def __init__(self, bench: Bench, steps: Sequence[Step]) -> None:
        self.game = bench.game
        self.steps = steps
        self.levels = list(bench.game.levels)
        self.starts = [step.before for step in steps if not step.before.actions]
        spots = [*self.starts, *(step.after for step in steps)]
        names = [name for name in spots[0].probes if name not in COMMON] if spots else []
        self.values = {name: _domain(spot.probes[name] for spot in spots) for name in names}
        words = bench.words
        effects = {"word": words, "probe": names, "effect": ("unchanged", "changed")}
        flags = [name for name in names if all(isinstance(value, bool) for value in self.values[name])]
        everything = _distinct(value for values in self.values.values() for value in values)
        amounts = (-2, -1, 0, 1, 2)
        spent = sorted({spot.state.acts for spot in spots})
        self._families = [
            self._family("leaves", effects, "effect", self._leaves),
            self._family("again", effects, "effect", self._again),
            self._family("sets", {"word": words, "probe": names, "value": everything}, "value", self._sets),
            self._family("shifts", {"word": words, "probe": names, "by": amounts}, "by", self._shifts),
            self._family("starts", {"level": self.levels, "probe": names, "value": everything}, "value", self._starts),
            self._family(
                "deadline",
                {"level": self.levels, "acts": spent, "done": (True, False)},
                "done",
                self._deadline,
            ),
            self._family("implies", {"flag": flags, "probe": flags, "value": (True, False)}, "value", self._implies),
            self._family("always", {"probe": names, "among": ("seen", "fewer")}, "among", self._always),
        ]

    def families(self) -> list[Family]:
        """The families it proposes for; they mutate within the values that were seen."""
        return self._families

    def proposals(self) -> list[Atom]:
        """Every claim that no watched step contradicts, with the first step that suggested it."""
        by_name = {family.name: family for family in self._families}
        atoms = []
        for name, terms, detail in (*self._from_steps(), *self._from_states()):
            atoms.append(by_name[name].atom(terms, Provenance.of("exploration", detail)))
        return atoms

    def _from_steps(self) -> Iterable[tuple[str, Terms, str]]:
        seen: dict[str, list[Step]] = defaultdict(list)
        repeats: dict[str, list[Step]] = defaultdict(list)
        for index, step in enumerate(self.steps):
            seen[step.word].append(step)
            if index and self.steps[index - 1].word == step.word and self.steps[index - 1].after is step.before:
                repeats[step.word].append(step)
        for word, probe in product(sorted(seen), self.values):
            where = f"{len(seen[word])} acts, first {seen[word][0].detail}"
            pairs = [(step.before.probes[probe], step.after.probes[probe]) for step in seen[word]]
            moved = [after for before, after in pairs if before != after]
            if not moved and len(pairs) >= MIN_SEEN:
                yield "leaves", {"word": word, "probe": probe, "effect": "unchanged"}, where
            if moved and all(after == moved[0] for _, after in pairs):
                yield "sets", {"word": word, "probe": probe, "value": moved[0]}, where
            if moved and repeats[word] and not any(_moves(step, probe) for step in repeats[word]):
                terms = {"word": word, "probe": probe, "effect": "unchanged"}
                yield "again", terms, f"{len(repeats[word])} repeats, first {repeats[word][0].detail}"
            shifts = {_shift(before, after) for before, after in pairs}
            if len(shifts) == 1 and not shifts & {None, 0}:
                yield "shifts", {"word": word, "probe": probe, "by": shifts.pop()}, where

    def _from_states(self) -> Iterable[tuple[str, Terms, str]]:
        for level in self.levels:
            starts = [spot for spot in self.starts if spot.level == level]
            for probe in self.values:
                values = _distinct(spot.probes[probe] for spot in starts)
                if len(values) == 1:
                    yield (
                        "starts",
                        {"level": level, "probe": probe, "value": values[0]},
                        f"{len(starts)} starts",
                    )
        ends = sorted({(s.after.level, s.after.state.acts) for s in self.steps if _timed_out(s.after)})
        for level, acts in ends:
            yield "deadline", {"level": level, "acts": acts, "done": True}, "an episode that ended by itself"
        flags = [name for name, values in self.values.items() if set(map(type, values)) == {bool}]
        spots = [step.after for step in self.steps]
        for flag in flags:
            raised = [spot for spot in spots if spot.probes[flag]]
            for probe in flags:
                values = _distinct(spot.probes[probe] for spot in raised)
                if probe != flag and len(values) == 1:
                    yield (
                        "implies",
                        {"flag": flag, "probe": probe, "value": values[0]},
                        f"{len(raised)} states",
                    )
        for probe, values in self.values.items():
            if all(isinstance(value, str) for value in values) and len(values) > 1:
                yield "always", {"probe": probe, "among": "seen"}, f"{len(spots)} states"

    def _family(self, name: str, slots: dict[str, Sequence[Any]], consequent: str, draft: Any) -> Family:
        def fits(terms: Terms) -> bool:
            return "value" not in terms or _among(terms["value"], self.values[terms["probe"]])

        return Family(name, self.game.name, slots, (consequent,), draft, fits)

    def _leaves(self, terms: Terms) -> Draft:
        word, probe, effect = terms["word"], terms["probe"], terms["effect"]
        boolean = set(map(type, self.values[probe])) == {bool}
        test = Experiment(do=[word], expect=[_effect(probe, effect)], null=[Otherwise()], effort=3 if boolean else 1)
        text = f"{word} {'never changes' if effect == 'unchanged' else 'always changes'} {probe}."
        return Draft(text, "no_effect" if effect == "unchanged" else "action_effect", self.levels, test)

    def _again(self, terms: Terms) -> Draft:
        word, probe, effect = terms["word"], terms["probe"], terms["effect"]
        test = Experiment(setup=[word], do=[word], expect=[_effect(probe, effect)], null=[Otherwise()])
        text = f"{word} right after {word} {'leaves' if effect == 'unchanged' else 'changes'} {probe}."
        return Draft(text, "no_effect" if effect == "unchanged" else "action_effect", self.levels, test)

    def _sets(self, terms: Terms) -> Draft:
        word, probe, value = terms["word"], terms["probe"], terms["value"]
        test = Experiment(do=[word], expect=[Eq(probe=probe, value=value)], null=[Unchanged(probe=probe)])
        kind: Kind = "hazard" if probe == "dead" and value is True else "action_effect"
        return Draft(f"{word} makes {probe} {say(value)}.", kind, self.levels, test)

    def _shifts(self, terms: Terms) -> Draft:
        word, probe, by = terms["word"], terms["probe"], terms["by"]
        test = Experiment(do=[word], expect=[Shift(probe=probe, by=by)], null=[Otherwise()])
        return Draft(f"{word} adds {by} to {probe}.", "budget", self.levels, test)

    def _starts(self, terms: Terms) -> Draft:
        level, probe, value = terms["level"], terms["probe"], terms["value"]
        test = at_start([Eq(probe=probe, value=value)], [Otherwise()])
        kind: Kind = "budget" if probe == "actions_left" else "initial_state"
        return Draft(f"Level {level} starts with {probe} {say(value)}.", kind, [level], test)

    def _deadline(self, terms: Terms) -> Draft:
        level, acts, done = terms["level"], terms["acts"], terms["done"]
        test = Experiment(
            pre=[Eq(probe="acts", value=acts)],
            max_walk=acts,
            expect=[Eq(probe="done", value=done)],
            null=[Eq(probe="done", value=not done)],
        )
        return Draft(f"Level {level} {'is over' if done else 'goes on'} after {acts} acts.", "budget", [level], test)

    def _implies(self, terms: Terms) -> Draft:
        flag, probe, value = terms["flag"], terms["probe"], terms["value"]
        test = Experiment(
            pre=[Eq(probe=flag, value=True)],
            max_walk=6,
            expect=[Eq(probe=probe, value=value)],
            null=[Eq(probe=probe, value=not value)],
        )
        return Draft(f"Whenever {flag}, {'also' if value else 'not'} {probe}.", "invariant", self.levels, test)

    def _always(self, terms: Terms) -> Draft:
        probe, among = terms["probe"], terms["among"]
        values = sorted(self.values[probe], key=canonical_json)[: -1 if among == "fewer" else None]
        test = Experiment(expect=[In(probe=probe, values=values)], null=[Otherwise()], effort=3)
        return Draft(f"{probe} is always one of {', '.join(map(say, values))}.", "invariant", self.levels, test)


def at_start(
    expect: list[Expect], null: list[Null], start: list[Condition] | None = None, effort: int = 3
) -> Experiment:
    """The test of a claim about first states; `start` narrows them."""
    return Experiment(
        start=start or [],
        random_actions=(0, 0),
        pre=[Eq(probe="acts", value=0)],
        max_walk=0,
        expect=expect,
        null=null,
        effort=effort,
    )


def _effect(probe: str, effect: str) -> Unchanged | Changed:
    return Unchanged(probe=probe) if effect == "unchanged" else Changed(probe=probe)


def _shift(before: Any, after: Any) -> int | None:
    numbers = all(isinstance(value, int) and not isinstance(value, bool) for value in (before, after))
    return after - before if numbers else None


def _timed_out(spot: Spot) -> bool:
    return bool(spot.state.done and not spot.state.cleared and not spot.state.dead)


def _moves(step: Step, probe: str) -> bool:
    return bool(step.before.probes[probe] != step.after.probes[probe])


def _among(value: Any, values: Iterable[Any]) -> bool:
    """Whether `value` is one of `values`; True and 1 are not the same thing here."""
    return any(type(other) is type(value) and other == value for other in values)


def _domain(values: Iterable[Any]) -> list[Any]:
    """The values that were seen; a flag could always be both."""
    seen = _distinct(values)
    return [False, True] if {type(value) for value in seen} == {bool} else seen


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not _among(value, found):
            found.append(value)
    return found
