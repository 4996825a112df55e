"""Play metrics: one flat dict of numbers for a set of episodes.

Invariant: a metric is a share of thinks, calls, acts or episodes exactly as `DEFINITIONS` states it; a
share of nothing is None, never 0. Only valid episodes count (`invalid_episodes` says how many do not).

What the player knew is judged against `facts`, the true fact words. The state before each call is rebuilt
from the calls themselves, and `game.advice` says what a player with the true rules would have stated and
called there. Where two orders of work are equally short, only the one that the advice names counts as
right, so the `right_*` shares are lower bounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from internalize.errors import UserError
from internalize.games.session import advanced
from internalize.language.calls import CallTable
from internalize.language.sayings import Sayings, WordSayings, place_of

if TYPE_CHECKING:
    from internalize.games.protocol import Game
    from internalize.harness.episode import CallRecord, Episode

Metrics = dict[str, float | None]

DEFINITIONS: dict[str, str] = {
    "episodes": "valid episodes",
    "invalid_episodes": "episodes left out because the harness failed",
    "return_mean": "mean shaped return",
    "return_sem": "standard error of return_mean over episodes",
    "clears": "episodes that cleared their level",
    "clear_rate": "clears / episodes",
    "level{k}_clear_rate": "clears / episodes on level k",
    "level{k}_episodes": "episodes on level k",
    "dead_share": "share of episodes that ended in a trap",
    "text_end_share": "share of episodes that ended with a text answer",
    "calls_per_episode": "mean number of replies an episode",
    "calls_median": "median number of replies an episode",
    "calls_uncleared": "mean number of replies of the episodes that did not clear",
    "think_tokens": "mean words of a think",
    "think_tokens_median": "median words of a think",
    "tool_call_ending_rate": "share of replies that end in a tool call",
    "invalid_share": "share of replies that could not be parsed or that the game refused",
    "look_share": "share of replies that call `look`",
    "noop_share": "share of acts that changed nothing",
    "loop_share": "share of replies that repeat the episode's previous call in an unchanged state",
    "repetition_share": "share of thinks that say the same run of words three times in a row",
    "unique_action_share": "distinct calls of an episode / its calls, over all episodes",
    "recital_share": "share of thinks with at least one true fact",
    "recital_other_share": "share of thinks with a true fact in the other wording (three words)",
    "top_recital_share": "share of thinks with a true fact before `need`",
    "distinct_facts": "distinct true facts stated",
    "needed_recited_share": "share of thinks that state every fact needed now",
    "right_share": "share of replies with the advised call",
    "right_given_recited": "right_share where every needed fact was stated",
    "right_given_not_recited": "right_share where it was not",
    "right_given_top_recital": "right_share where a true fact stood before `need`",
    "named_given_top_recital": "share of thinks with a true fact before `need` whose call names its place",
    "recited_facts": "true facts stated, counted with repetition",
    "recited_named": "those whose place the call of the same reply names",
    "recited_named_share": "recited_named / recited_facts (the record: 5 of 168)",
}
"""What each metric means; `{k}` stands for a level."""

LOOK = "look"


def play_metrics(
    episodes: Sequence[Episode], game: Game, facts: Collection[str] | None = None, sayings: Sayings | None = None
) -> Metrics:
    """All play metrics of `episodes`.

    Args:
        episodes: finished episodes of one policy.
        game: the game they were played on, with its true rules.
        facts: the true fact words (`left@N`); None: those of the game's rules.
        sayings: how thinks state them; None: word for word.

    Raises:
        UserError: `facts` is None and the game does not state its rules as facts.
    """
    true = frozenset(true_facts(game) if facts is None else facts)
    valid = [episode for episode in episodes if episode.valid]
    said = sayings if sayings is not None else WordSayings(true)
    calls = [reading for episode in valid for reading in read_calls(episode, game, true, said)]
    return _outcomes(valid, len(episodes)) | _behaviour(valid, calls) | _knowledge(calls)


def true_facts(game: Game) -> tuple[str, ...]:
    """The fact words of a game that has one rules object.

    Raises:
        UserError: it has none.
    """
    rules = getattr(game, "rules", None)
    if rules is None or not hasattr(rules, "facts"):
        raise UserError(
            f"game {game.name} does not state its rules as facts",
            fix="pass the verified facts of the knowledge set",
        )
    return tuple(rules.facts())


def states(episode: Episode, game: Game) -> Iterator[tuple[CallRecord, Any]]:
    """Each call with the game state before it, rebuilt from level, seed and calls."""
    state = game.start(episode.plan.level, episode.plan.seed)
    words = CallTable(game.call_words(), spelled=True)
    for call in episode.calls:
        if state.done:
            return
        yield call, state
        if call.kind != "say":
            made = call.kind == "call" and call.call_word is not None
            state = advanced(game, state, words.expand(str(call.call_word)) if made else None)


class CallReading:
    """What one reply says, set against what a player with the true rules would say."""

    def __init__(
        self,
        call: CallRecord,
        state: Any,
        game: Game,
        true: frozenset[str],
        sayings: Sayings,
        previous: tuple[Any, str | None] | None,
    ) -> None:
        advice = game.advice(state)
        words = call.think.split()
        self.kind = call.kind
        self.word = call.call_word if call.kind == "call" else None
        self.length = len(words)
        self.repeats = _repeats(words)
        stated = sayings.stated(call.think)
        self.recited = [fact for fact in stated if fact in true]
        self.top = [fact for fact in sayings.top(call.think) if fact in true]
        self.other = any(fact in true for fact in sayings.reworded(call.think))
        self.needed = set(advice.facts) <= set(stated) if advice.facts else None
        self.right = self.word == advice.call if advice.call else None
        self._place = game.place(state, self.word) if self.word is not None else None
        world = tuple(game.probes(state)[name] for name in sorted(game.probes(state)) if name != "actions_left")
        self.situation = (world, self.word)
        self.loops = previous is not None and self.word is not None and previous == self.situation

    def names(self, fact: str) -> bool:
        """True when the call acts at the place that the fact speaks of: `left@N` and `dip:N`, `red@b` and
        `pot:b`."""
        return self._place == place_of(fact)


def read_calls(episode: Episode, game: Game, true: frozenset[str], sayings: Sayings) -> list[CallReading]:
    """One reading a reply of the episode."""
    readings: list[CallReading] = []
    for call, state in states(episode, game):
        readings.append(CallReading(call, state, game, true, sayings, readings[-1].situation if readings else None))
    return readings


def share(part: float, whole: float) -> float | None:
    """`part / whole`; None when there is nothing to take a share of."""
    return part / whole if whole else None


def _outcomes(valid: Sequence[Episode], total: int) -> Metrics:
    count = len(valid)
    returns = [episode.returned for episode in valid]
    mean = share(math.fsum(returns), count)
    sem = None
    if mean is not None and count > 1:
        sem = math.sqrt(math.fsum((value - mean) ** 2 for value in returns) / (count - 1) / count)
    clears = sum(episode.outcome.cleared for episode in valid)
    metrics: Metrics = {
        "episodes": count,
        "invalid_episodes": total - count,
        "return_mean": mean,
        "return_sem": sem,
        "clears": clears,
        "clear_rate": share(clears, count),
        "dead_share": share(sum(episode.outcome.dead for episode in valid), count),
        "text_end_share": share(sum(episode.outcome.text_end for episode in valid), count),
    }
    for level in sorted({episode.plan.level for episode in valid}):
        there = [episode for episode in valid if episode.plan.level == level]
        metrics[f"level{level}_clear_rate"] = share(sum(e.outcome.cleared for e in there), len(there))
        metrics[f"level{level}_episodes"] = len(there)
    return metrics


def _behaviour(valid: Sequence[Episode], calls: Sequence[CallReading]) -> Metrics:
    lengths = [len(episode.calls) for episode in valid]
    open_ended = [len(episode.calls) for episode in valid if not episode.outcome.cleared]
    thinks = [call.length for call in calls]
    named = [[call.call_word for call in episode.calls if call.kind == "call"] for episode in valid]
    return {
        "calls_per_episode": share(sum(lengths), len(lengths)),
        "calls_median": float(median(lengths)) if lengths else None,
        "calls_uncleared": share(sum(open_ended), len(open_ended)),
        "think_tokens": share(sum(thinks), len(thinks)),
        "think_tokens_median": float(median(thinks)) if thinks else None,
        "tool_call_ending_rate": share(sum(call.kind == "call" for call in calls), len(calls)),
        "invalid_share": share(sum(episode.outcome.invalid for episode in valid), sum(lengths)),
        "look_share": share(sum(call.word == LOOK for call in calls), len(calls)),
        "noop_share": share(sum(e.outcome.noops for e in valid), sum(e.outcome.acts for e in valid)),
        "loop_share": share(sum(call.loops for call in calls), len(calls)),
        "repetition_share": share(sum(call.repeats for call in calls), len(calls)),
        "unique_action_share": share(sum(len(set(words)) for words in named), sum(map(len, named))),
    }


def _knowledge(calls: Sequence[CallReading]) -> Metrics:
    def right(subset: Sequence[CallReading]) -> float | None:
        """Of the calls in states where somebody knows better."""
        judged = [call.right for call in subset if call.right is not None]
        return share(sum(judged), len(judged))

    needing = [call for call in calls if call.needed is not None]
    top = [call for call in calls if call.top]
    recited = sum(len(call.recited) for call in calls)
    named = sum(call.names(fact) for call in calls for fact in call.recited)
    return {
        "recital_share": share(sum(bool(call.recited) for call in calls), len(calls)),
        "recital_other_share": share(sum(call.other for call in calls), len(calls)),
        "top_recital_share": share(len(top), len(calls)),
        "distinct_facts": len({fact for call in calls for fact in call.recited}),
        "needed_recited_share": share(sum(bool(call.needed) for call in needing), len(needing)),
        "right_share": right(calls),
        "right_given_recited": right([call for call in needing if call.needed]),
        "right_given_not_recited": right([call for call in needing if not call.needed]),
        "right_given_top_recital": right(top),
        "named_given_top_recital": share(sum(any(map(call.names, call.top)) for call in top), len(top)),
        "recited_facts": recited,
        "recited_named": named,
        "recited_named_share": share(named, recited),
    }


def _repeats(words: Sequence[str]) -> bool:
    """True when some run of words stands three times in a row."""
    return any(
        words[at : at + size] == words[at + size : at + 2 * size] == words[at + 2 * size : at + 3 * size]
        for size in range(1, len(words) // 3 + 1)
        for at in range(len(words) - 3 * size + 1)
    )
