from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageColor

from internalize.games.dipwheel import DipWheel
from internalize.games.dipwheel.layout import CANVAS_CELLS, POT_CELLS, STATION_CELLS, TARGET_CELLS
from internalize.games.picture import CAPTION, CELL, PALETTE, picture, write_picture


def colour_at(image: Image.Image, x: int, y: int) -> tuple[int, ...]:
    """Pixel near the bottom right corner of a cell, clear of labels and lines."""
    pixel = image.getpixel((x * CELL + CELL - 4, y * CELL + CELL - 4))
    assert isinstance(pixel, tuple)
    return pixel


def test_cells_have_the_colours_of_the_state(game: DipWheel) -> None:
    state = game.start(4, 0)._replace(canvas=(1, 2, 3, 0), target=(0, 3, 2, 1), pot=2, sprung=1, acts=4)
    image = picture(game, state)
    assert image.size == (8 * CELL, 8 * CELL + CAPTION)
    red, green, blue, blank = (ImageColor.getrgb(PALETTE[number]) for number in (1, 2, 3, 0))
    assert [colour_at(image, *cell) for cell in CANVAS_CELLS] == [red, green, blue, blank]
    assert [colour_at(image, *cell) for cell in TARGET_CELLS] == [blank, blue, green, red]
    assert len({red, green, blue, blank}) == 4
    marked = [colour_at(image, x, 7) == ImageColor.getrgb(PALETTE[7]) for x, _ in POT_CELLS]
    assert marked == [False, False, True]
    sprung = [colour_at(image, *cells[0]) == ImageColor.getrgb(PALETTE[10]) for cells in STATION_CELLS]
    assert sprung == [False, True, False, False, False, False]
    budget = [colour_at(image, x, 0) == ImageColor.getrgb(PALETTE[8]) for x in range(8)]
    assert budget == [True] * 4 + [False] * 4


def test_caption_is_drawn(game: DipWheel) -> None:
    image = picture(game, game.start(1, 0)).crop((0, 8 * CELL, 8 * CELL, 8 * CELL + CAPTION))
    assert image.convert("L").getextrema()[0] < 100


def test_png_on_disk_is_the_picture(game: DipWheel, tmp_path: Path) -> None:
    state = game.start(6, 1)
    write_picture(tmp_path / "state.png", game, state)
    with Image.open(tmp_path / "state.png") as stored:
        assert stored.format == "PNG"
        assert stored.convert("RGB").tobytes() == picture(game, state).tobytes()
    write_picture(tmp_path / "again.png", game, state)
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "state.png").read_bytes()
