"""The bundled game. Hidden rules (`rules`), states (`state`), screens and words (`layout`, `text`), plans
(`planner`)."""

from internalize.games.dipwheel.game import DipWheel, from_settings
from internalize.games.dipwheel.player import decide
from internalize.games.dipwheel.rules import Rules, random_rules

__all__ = ["DipWheel", "Rules", "decide", "from_settings", "random_rules"]
