"""A player who acts on beliefs about the rules, right or wrong.

Invariant: the think names the next dip, which anybody can see from canvas and target, and then exactly the
facts that lead from it to the call; so the hidden rules enter an act only through the facts in the think.
"""

from __future__ import annotations

from internalize.games.dipwheel.planner import need
from internalize.games.dipwheel.rules import POTS, Rules
from internalize.games.dipwheel.state import DipState
from internalize.games.protocol import Advice


def advise(state: DipState, believed: Rules) -> Advice:
    """The step of a player who believes `believed`; ValueError if the state is cleared."""
    region, colour = need(state.canvas, state.target)
    station = believed.place[region]
    if colour is None:
        return Advice((region,), f"dip:{station}", (believed.fact(region),))
    pot = believed.place[colour]
    call = f"dip:{station}" if POTS[state.pot] == pot else f"pot:{pot}"
    return Advice((region, colour), call, (believed.fact(region), believed.fact(colour)))


def decide(state: DipState, believed: Rules) -> tuple[str, str]:
    """Think and call word: `("need left red left@N red@b", "pot:b")`, or `need wipe dry wipe@S` for a
    wipe."""
    advice = advise(state, believed)
    region, *colour = advice.need
    return " ".join(["need", region, *(colour or ["dry"]), *advice.facts]), advice.call
