"""Pictures of game states.

Invariant: a picture shows the game's frame and nothing else, cell (x, y) as the square of `CELL` pixels whose
top left corner is (x * CELL, y * CELL), under it the observation that a player reads.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image, ImageColor, ImageDraw, ImageFont

from internalize.files import write_bytes
from internalize.games.palette import PALETTE
from internalize.games.protocol import Game

CELL = 40
CAPTION = 28

_INK, _PAPER, _LINE = "#202020", "#ffffff", "#f6f4ef"


def picture(game: Game, state: Any) -> Image.Image:
    """RGB picture of `state`: `CELL` pixels a frame cell, then a caption strip of `CAPTION` pixels."""
    frame = game.frame(state)
    width, height = len(frame[0]) * CELL, len(frame) * CELL
    image = Image.new("RGB", (width, height + CAPTION), _PAPER)
    draw = ImageDraw.Draw(image)
    for y, row in enumerate(frame):
        for x, value in enumerate(row):
            box = (x * CELL, y * CELL, (x + 1) * CELL - 1, (y + 1) * CELL - 1)
            draw.rectangle(box, fill=PALETTE[value], outline=_LINE)
    font = ImageFont.load_default(13)
    for (x, y), label in game.labels().items():
        dark = sum(ImageColor.getrgb(PALETTE[frame[y][x]])) < 3 * 128
        draw.text((x * CELL + 5, y * CELL + 3), label, fill=_PAPER if dark else _INK, font=font)
    draw.text((8, height + 6), f"level {state.level}:  {game.observe(state)}", fill=_INK, font=font)
    return image


def write_picture(path: Path, game: Game, state: Any) -> None:
    """Write the picture of `state` as PNG."""
    buffer = io.BytesIO()
    picture(game, state).save(buffer, format="PNG")
    write_bytes(path, buffer.getvalue())
