"""Knowledge probes: what the weights know, asked without playing.

Invariant: a probe scores the true continuation and its matched false one (same subject, wrong value) after
the same text, every token with weight 1 whatever weight training gave it; so style that was learned lowers
both and only knowledge widens the margin between them. No probe has knowledge in its prompt.

Forms:
    play      the fact word where a think needs it: a first-turn state, `need left red`, then `left@N`
    top       the fact word as the first word of a think
    qa        `ask left` answered in the wording of thinks; `other`: in the wording that thinks never use
    reverse   `ask N` answered by what is there; cloze, paraphrase (a form held out of training), claim:
    true or false
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from internalize.engine.protocol import SamplingParams
from internalize.evals.play_metrics import Metrics, share
from internalize.language.sayings import Sayings, place_of, subject_of
from internalize.rollout.plans import level_seed
from internalize.seeds import np_rng, rng

if TYPE_CHECKING:
    from internalize.engine.protocol import Scoring
    from internalize.games.protocol import Game
    from internalize.language.dialogue import Dialogue

STATES_PER_FACT = 12
TOP_STATES = 8
PATIENCE = 400
"""States without a new probe after which the search for more ends (no state needs a trap)."""
FORMS = {
    ("qa", "think"): "qa",
    ("declarative", "think"): "qa",
    ("declarative", "other"): "other",
    ("qa", "other"): "reverse",
    ("cloze", "other"): "cloze",
    ("paraphrase", "other"): "paraphrase",
}
"""Form and wording of a recall row -> name of the probe; other pairs are named `form_wording`."""
KNOWN = math.log(2)
"""A fact counts as known when its mean NLL is below this: more likely than not."""


@dataclass(frozen=True)
class Facts:
    """The true fact words and the places that each could be mistaken for."""

    true: tuple[str, ...]
    held_out: frozenset[str]
    false: Mapping[str, str]
    """Fact -> the matched false fact."""
    rivals: Mapping[str, tuple[str, ...]]
    """Fact -> all false facts about its subject that the model can say."""
    sayings: Sayings
    """How facts are said."""

    @classmethod
    def of(cls, true: Iterable[str], held_out: Iterable[str], sayings: Sayings, seed: int) -> Facts:
        """The facts of a knowledge set; a false fact must be one that can be said."""
        facts = tuple(sorted({*true, *held_out}))
        places = sorted({place_of(fact) for fact in facts})
        rivals = {
            fact: tuple(w for p in places if (w := f"{subject_of(fact)}@{p}") != fact and w in sayings.facts)
            for fact in facts
        }
        false = {fact: rng("probe", "false", seed, fact).choice(wrong) for fact, wrong in rivals.items() if wrong}
        return cls(facts, frozenset(held_out), false, rivals, sayings)


@dataclass(frozen=True)
class Probe:
    """Two continuations of one text."""

    form: str
    fact: str
    held_out: bool
    prefix: tuple[int, ...]
    true: tuple[int, ...]
    false: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """A closed-book question and every answer that counts."""

    fact: str
    held_out: bool
    reverse: bool
    """Asks for what is at a place, not for the place of a subject."""
    prompt: tuple[int, ...]
    answers: frozenset[str]


class ProbeSet:
    """All probes of one knowledge set, made once and asked of many weights."""

    def __init__(
        self, game: Game, template: Dialogue, facts: Facts, recall: Sequence[Mapping[str, Any]], seed: int
    ) -> None:
        """`recall`: rows of `recall.jsonl` (`form`, `wording`, `prompt`, `answer`, `label`, `fact`,
        `expressible`)."""
        self._template = template
        self.facts = facts
        rows = [row for row in recall if row.get("expressible", True)]
        self.probes = [
            *play_probes(game, template, facts, seed),
            *top_probes(game, template, facts, seed),
            *recall_probes(template, facts, rows),
        ]
        self.questions = questions(template, facts, rows)

    def measure(self, engine: Scoring) -> Metrics:
        """NLL, margin and accuracy by form (see `summarise`) and closed-book QA at temperature 0."""
        return summarise(self.probes, score(engine, self.probes)) | self._ask(engine)

    def _ask(self, engine: Scoring) -> Metrics:
        prompts = [list(question.prompt) for question in self.questions]
        sessions = [f"qa-{i}" for i in range(len(prompts))]
        tokens = self._template.answer_tokens
        sampling = SamplingParams(temperature=0.0, max_new_tokens=tokens, stop_ids=(self._template.stop_id,))
        right: dict[str, list[bool]] = {"": [], "_trained": [], "_held_out": [], "_reverse": []}
        said, stated = [], []
        for at in range(0, len(prompts), engine.slots):
            part = slice(at, at + engine.slots)
            rngs = [np_rng("qa", name) for name in sessions[part]]
            done = engine.generate(prompts[part], sessions[part], rngs, sampling)
            engine.release(sessions[part])
            for question, completion in zip(self.questions[part], done, strict=True):
                reply = self._template.parse(completion.output_ids)
                correct = reply.kind == "say" and reply.say in question.answers
                if question.reverse:
                    right["_reverse"].append(correct)
                    continue
                right[""].append(correct)
                right["_held_out" if question.held_out else "_trained"].append(correct)
                said.append(reply.kind == "say")
                text = self._template.decode(completion.output_ids)
                stated.append(set(self.facts.sayings.stated(text)) == {question.fact})
        shares = {f"qa_accuracy{name}": share(sum(values), len(values)) for name, values in right.items()}
        return shares | {
            "qa_questions": len(said),
            "qa_text_share": share(sum(said), len(said)),
            "qa_stated_share": share(sum(stated), len(stated)),
        }


def play_probes(game: Game, template: Dialogue, facts: Facts, seed: int) -> list[Probe]:
    """The needed fact in states that need it: `STATES_PER_FACT` a fact, fewer for facts that few states
    need (a trap: none)."""
    by_subject = {subject_of(fact): fact for fact in facts.true}
    wanted = dict.fromkeys(facts.true, STATES_PER_FACT)
    probes: list[Probe] = []
    last_found = 0
    for number in count():
        if number - last_found > PATIENCE:
            break
        state = _state(game, seed, number)
        if state is None:
            continue
        advice = game.advice(state)
        think = facts.sayings.wanted(advice.need) if advice.need else []
        for subject in advice.need:
            fact = by_subject.get(subject)
            if fact is not None and wanted[fact]:
                wanted[fact] -= 1
                last_found = number
                prefix = [*template.user(game.observe(state)), *template.begun(think)]
                probes.append(_stating("play", fact, facts, template, prefix))
            think.append(facts.sayings.say(next(f for f in advice.facts if subject_of(f) == subject)))
        if not any(wanted.values()):
            break
    return probes


def top_probes(game: Game, template: Dialogue, facts: Facts, seed: int) -> list[Probe]:
    """Every fact as the first word of a think, in `TOP_STATES` states."""
    states = [s for number in range(8 * TOP_STATES) if (s := _state(game, seed, -1 - number)) is not None][:TOP_STATES]
    prefixes = [[*template.user(game.observe(state)), *template.begun([])] for state in states]
    return [_stating("top", fact, facts, template, prefix) for prefix in prefixes for fact in facts.true]


def recall_probes(template: Dialogue, facts: Facts, rows: Iterable[Mapping[str, Any]]) -> list[Probe]:
    """The answer of each recall row about a play fact, and of each claim about one, true or false; each
    once."""
    subjects = {subject_of(fact): fact for fact in facts.true}
    probes: dict[tuple[str, str, str], Probe] = {}
    for row in rows:
        fact, answer = row.get("fact"), row["answer"]
        wrong = answer
        if row.get("label") is not None:
            fact = _claimed(row["prompt"], subjects)
            wrong = "false" if answer == "true" else "true"
        elif fact is not None and fact in facts.false:
            wrong = falsified(answer, row["prompt"], fact, facts)
        if fact is None or fact not in facts.false or wrong == answer:
            continue
        form = FORMS.get((row["form"], row["wording"]), f"{row['form']}_{row['wording']}")
        if row["form"] == "claimform":
            form = f"claim_{answer}"
        prefix = (*template.user(row["prompt"]), *template.said())
        ids = [tuple(template.encode(text)) for text in (answer, wrong)]
        probes.setdefault((form, row["prompt"], answer), Probe(form, fact, fact in facts.held_out, prefix, *ids))
    return list(probes.values())


def questions(template: Dialogue, facts: Facts, rows: Sequence[Mapping[str, Any]]) -> list[Question]:
    """One question a prompt of form `qa`; an answer in any recall form of that prompt counts."""
    asked = {
        (row["fact"], row["prompt"]): row["wording"]
        for row in reversed(rows)
        if row["form"] == "qa" and row.get("fact") in facts.false
    }
    found = []
    for (fact, prompt), wording in sorted(asked.items()):
        answers = frozenset(row["answer"] for row in rows if (row.get("fact"), row["prompt"]) == (fact, prompt))
        found.append(Question(fact, fact in facts.held_out, wording == "other", tuple(template.user(prompt)), answers))
    return found


def falsified(answer: str, prompt: str, fact: str, facts: Facts) -> str:
    """`answer` made false: the subject's place replaced by the false one or, when the prompt itself names
    the place, the subject by that of another fact of the same kind."""
    say, name = facts.sayings.say, facts.sayings.name
    if re.search(rf"(?<![\w@-]){re.escape(name(place_of(fact)))}(?![\w@-])", prompt):
        same_kind = [
            other for other in facts.true if other != fact and len(facts.rivals[other]) == len(facts.rivals[fact])
        ]
        wrong = same_kind[(facts.true.index(fact)) % len(same_kind)]
        lie = f"{subject_of(wrong)}@{place_of(fact)}"
        swap = {say(fact): say(lie), name(subject_of(fact)): name(subject_of(wrong))}
    else:
        lie = facts.false[fact]
        swap = {say(fact): say(lie), name(place_of(fact)): name(place_of(lie))}
    longest = sorted(swap, key=len, reverse=True)
    parts = "|".join(map(re.escape, longest))
    return re.sub(rf"(?<![\w@-])(?:{parts})(?![\w@-])", lambda found: swap[found[0]], answer)


def _claimed(prompt: str, subjects: Mapping[str, str]) -> str | None:
    """The true fact about the subject of `claim left@N` or `claim left at N`; None for another claim."""
    words = prompt.split()
    about = (
        words[1]
        if len(words) == 2 and "@" in words[1]
        else f"{words[1]}@"
        if len(words) == 4 and words[2] == "at"
        else ""
    )
    return subjects.get(subject_of(about)) if about else None


def score(engine: Scoring, probes: Sequence[Probe]) -> list[tuple[float, float]]:
    """Summed NLL (nats) of the true and of the false continuation of each probe."""
    tables: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for probe in probes:
        for answer in (probe.true, probe.false):
            tables.setdefault((probe.prefix, answer), len(tables))
    scores = engine.continuations(list(tables))

    def nll(prefix: tuple[int, ...], answer: tuple[int, ...]) -> float:
        return -math.fsum(scores[tables[prefix, answer]])

    return [(nll(probe.prefix, probe.true), nll(probe.prefix, probe.false)) for probe in probes]


def summarise(probes: Sequence[Probe], nlls: Sequence[tuple[float, float]]) -> Metrics:
    """Flat figures by form.

    `nll_F`, `nll_F_false`: nats per token; `margin_F`: nats per fact that the false one costs more;
    `acc_F`: share of probes that prefer the true one; `known_F`: share of facts more likely than not.
    `_trained` and `_held_out` split `nll_F` and `margin_F` by whether training may have seen the fact.
    """
    metrics: Metrics = {}
    for form in dict.fromkeys(probe.form for probe in probes):
        chosen = [(probe, nll) for probe, nll in zip(probes, nlls, strict=True) if probe.form == form]
        metrics[f"nll_{form}"] = _per_token(chosen)
        metrics[f"nll_{form}_false"] = share(sum(n[1] for _, n in chosen), sum(len(p.false) for p, _ in chosen))
        metrics[f"margin_{form}"] = _margin(chosen)
        metrics[f"acc_{form}"] = share(sum(true < false for _, (true, false) in chosen), len(chosen))
        facts: dict[str, list[float]] = {}
        for probe, (true, _) in chosen:
            facts.setdefault(probe.fact, []).append(true)
        metrics[f"known_{form}"] = share(sum(sum(v) / len(v) < KNOWN for v in facts.values()), len(facts))
        for name, held in (("trained", False), ("held_out", True)):
            part = [(probe, nll) for probe, nll in chosen if probe.held_out is held]
            metrics[f"nll_{form}_{name}"] = _per_token(part)
            metrics[f"margin_{form}_{name}"] = _margin(part)
    return metrics


def _per_token(chosen: Sequence[tuple[Probe, tuple[float, float]]]) -> float | None:
    return share(sum(nll[0] for _, nll in chosen), sum(len(probe.true) for probe, _ in chosen))


def _margin(chosen: Sequence[tuple[Probe, tuple[float, float]]]) -> float | None:
    return share(sum(false - true for _, (true, false) in chosen), len(chosen))


def _stating(form: str, fact: str, facts: Facts, template: Dialogue, prefix: Sequence[int]) -> Probe:
    true, false = (tuple(template.encode(facts.sayings.say(one))) for one in (fact, facts.false[fact]))
    return Probe(form, fact, fact in facts.held_out, tuple(prefix), true, false)


def _state(game: Game, seed: int, number: int) -> Any | None:
    """An open state up to three random acts into a level; None when the walk ended it."""
    draw = rng("probe", "state", seed, number)
    state = game.start(draw.choice(game.training_levels), level_seed("check", "probe", seed, number))
    words = game.call_words()
    for _ in range(draw.randrange(4)):
        action = words[draw.choice(sorted(words))]
        if state.done or game.refuse(state, action) is not None:
            break
        state = game.apply(state, action)
    return None if state.done else state
