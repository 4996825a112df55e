"""A small ring-and-dip game for ARCEngine, written for the tests of this project; its rules are its own.

A 4x4 canvas, a target in the corner, a tool on eight stations. A dip paints the half, or the triangle, that lies
opposite the station. Level 2 has a third paint and a small tool, which paints the block next to the station. A level
gives twenty acts, of which the last is lost.
"""

from arcengine import ARCBaseGame, Camera, Level, RenderableUserDisplay, Sprite

SIDE, ACTS, STEPS = 4, 20, 3
RING = ["N", "NE", "E", "SE", "S", "SW", "W", "NW"]
SPOTS = {"N": (0, 1), "NE": (0, 2), "E": (1, 2), "SE": (2, 2), "S": (2, 1), "SW": (2, 0), "W": (1, 0), "NW": (0, 0)}
TOOL = {name: (26 + 8 * column, 26 + 8 * row) for name, (row, column) in SPOTS.items()}
SMALL = {"N": (35, 21), "E": (47, 35), "S": (35, 47), "W": (21, 35)}
ARROWS = {1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}


def flat(colour, width, height, name):
    return Sprite(pixels=[[colour] * width for _ in range(height)], name=name)


def swatch(colour, x):
    rows = [[4] * 5] + [[4, colour, colour, colour, 4]] * 3 + [[4] * 5]
    return Sprite(pixels=rows, name=f"swatch{colour}").set_position(x, 2)


def level(rows, colours, small):
    parts = [
        Sprite(pixels=rows, name="target").set_position(4, 4),
        flat(0, SIDE, SIDE, "canvas").set_position(34, 34),
        *[swatch(colour, 20 + 6 * index) for index, colour in enumerate(colours)],
    ]
    return Level(sprites=parts, grid_size=(64, 64), data={"small": small})


LEVELS = [
    level([[0] * 4, [0] * 4, [8] * 4, [8] * 4], [8, 9], False),
    level([[9, 14, 14, 9], [9, 9, 9, 9], [8] * 4, [8] * 4], [8, 9, 14], True),
    level([[9, 9, 8, 8]] * 4, [8, 9], False),
]


class Bar(RenderableUserDisplay):
    def __init__(self):
        self.left = ACTS

    def render_interface(self, frame):
        frame[63, :] = 5
        frame[63, : 64 * self.left // ACTS] = 4
        return frame


class Ring(ARCBaseGame):
    def __init__(self):
        self.bar = Bar()
        self.at, self.paint, self.phase = "N", 8, 0
        super().__init__("ring", LEVELS, Camera(background=5, letter_box=5, interfaces=[self.bar]))

    def on_set_level(self, level):
        self.at, self.paint, self.phase = "N", 8, 0
        self.bar.left = ACTS
        self.show()

    def show(self):
        for name in ("tool", "small"):
            for sprite in self.current_level.get_sprites_by_name(name):
                self.current_level.remove_sprite(sprite)
        tool = Sprite(pixels=[[2] * 4, [2] + [self.paint] * 3, [2] + [self.paint] * 3], name="tool", layer=2)
        self.current_level.add_sprite(tool.set_position(*TOOL[self.at]))
        if self.current_level.get_data("small") and self.at in SMALL:
            self.current_level.add_sprite(flat(self.paint, 2, 2, "small").set_position(*SMALL[self.at]))

    def step(self):
        self.bar.left = ACTS - self._action_count
        if self._action_count >= ACTS:
            self.lose()
            self.complete_action()
            return
        print("a game that talks", self.action.id)
        number = self.action.id.value
        if number in ARROWS:
            self.walk(*ARROWS[number])
        elif number == 5 and self.animated():
            self.stroke(self.half)
        elif number == 6:
            self.click(self.action.data["x"], self.action.data["y"])
        if self.phase == 0:
            self.complete_action()

    def walk(self, down, right):
        row, column = SPOTS[self.at]
        there = (row + down, column + right)
        names = [name for name, spot in SPOTS.items() if spot == there]
        self.at = names[0] if names else self.at
        self.show()

    def animated(self):
        self.phase = (self.phase + 1) % STEPS
        return self.phase == 0

    def click(self, x, y):
        sprite = self.current_level.get_sprite_at(x, y, ignore_collidable=True)
        if sprite is not None and sprite.name.startswith("swatch"):
            self.paint = int(sprite.name.removeprefix("swatch"))
            self.show()
        elif sprite is not None and sprite.name == "small":
            self.stroke(self.block)

    def half(self, x, y):
        down, right = (part - 1 for part in SPOTS[self.at])
        depth = down * (2 * y - SIDE + 1) + right * (2 * x - SIDE + 1)
        return depth <= 0

    def block(self, x, y):
        edge = {"N": y, "S": SIDE - 1 - y, "W": x, "E": SIDE - 1 - x}[self.at]
        along = x if self.at in "NS" else y
        return edge == 0 and 1 <= along <= 2

    def stroke(self, covers):
        canvas = self.current_level.get_sprites_by_name("canvas")[0]
        pixels = canvas.pixels.copy()
        for y in range(SIDE):
            for x in range(SIDE):
                if covers(x, y):
                    pixels[y, x] = self.paint
        canvas.pixels = pixels
        target = self.current_level.get_sprites_by_name("target")[0]
        if (canvas.pixels == target.pixels).all():
            self.next_level()
