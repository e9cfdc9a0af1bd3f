"""Draw `docs/rooms.svg` and write `docs/rooms.md`: the packages, their rooms, and the purpose of each module.

    python docs/draw_rooms.py    # run this after rooms or imports between them changed, or the first words of a module

The page is the index of the code. It is made from docstrings, so that it names every module and agrees with what the
module says about itself. A folder is described by the first paragraph of its docstring, and a module by the first
sentence, or by a few short ones.

In the picture, rooms are drawn lighter than the single modules beside them. The rows are the layers that pyproject.toml
declares for import-linter, and the arrows are the imports in the code. If a room imports another room both directly and
through a third one, the picture leaves out the direct arrow.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "rooms.svg"
INDEX = ROOT / "docs" / "rooms.md"
ABOUT_INDEX = """# The rooms

Search this page to find out where something is. It lists every folder with what it is for, and every module as the
module describes itself. Packages, and the rooms of each package, stand from the highest to the lowest.
[Architecture](architecture.md) tells how they work together, and the `__init__.py` of a folder says more about it.
`python docs/draw_rooms.py` writes this page from the docstrings, and a test compares the two.
"""
SUMMARY_CHARS_MAX = 200  # a module is described by its first sentence, and further ones as long as all are no longer

WIDTH, MARGIN, GAP = 1000, 16, 16  # in pixels, like all sizes below
TITLE_WIDTH, TITLE_HEIGHT, PADDING = 130, 42, 14
ROOM_HEIGHT, ROW_HEIGHT = 31, 58
ROOM_WIDTH_MIN, CHAR_WIDTH = 96, 7.6
STYLE = """
svg { background: #ffffff }
text { font: 13px system-ui, sans-serif; fill: #1b2330 }
.name { font-weight: 600 } .title { font-size: 15px }
.package { fill: #f1f4f8; stroke: #c5cedb } .room { fill: #ffffff; stroke: #6b7a90 }
.module { fill: #f1f4f8; stroke: #a9b4c4 }
.arrow { stroke: #8593a8; fill: none } .head { fill: #8593a8 }
@media (prefers-color-scheme: dark) {
  svg { background: #11161d }
  text { fill: #e6ebf2 }
  .package { fill: #1a212b; stroke: #3a4655 } .room { fill: #2b3646; stroke: #8797ad }
  .module { fill: #1a212b; stroke: #4d5a6c }
  .arrow { stroke: #7f8da3 } .head { fill: #7f8da3 }
}
"""

# The centre of each room, in percent of the width of its row. These numbers are chosen so that few arrows pass behind
# other rooms. A room that this table does not name is placed as if all rooms of its row were spread evenly.
# fmt: off
PLACES: dict[str, dict[str, int]] = {
    "service": {
        "own_packages": 24, "serve": 50, "app": 10, "api": 38, "wiring": 80, "health_routes": 10, "views": 38,
        "lease_peers": 70, "context": 46, "stores": 64, "monitoring": 12, "streams": 78, "ranks": 78,
        "http": 12, "telemetry": 30, "contract": 60,
    },
    "jobs": {
        "boards": 26, "curves": 26, "leases": 52, "queue": 80, "ownership": 46,
        "controls": 60, "errors": 14, "request_origin": 34,
    },
    "storage": {
        "queue": 38, "posting": 30, "reads": 30, "archive": 42, "curves": 86, "entries": 48, "log": 46, "boards": 42,
        "engines": 90, "leases": 68, "schema": 76, "coalesce": 18, "store": 62, "records": 40, "periods": 26,
        "errors": 90,
    },
}
# fmt: on

Rows = list[list[str]]  # names from top to bottom, and within a row from left to right
Arrows = set[tuple[str, str]]  # (importing room, imported room)


class Box(NamedTuple):
    """A rectangle of the picture, in pixels."""

    left: float
    top: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """The horizontal centre."""
        return self.left + self.width / 2

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.top + self.height


def read_layers() -> tuple[Rows, dict[str, Rows]]:
    """Return the rows of packages, and for each package with rooms the rows of its rooms."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    packages: Rows = []
    rooms: dict[str, Rows] = {}
    for contract in declared["contracts"]:
        if contract["type"] != "layers":
            continue
        rows = [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
        if "containers" in contract:
            rooms[contract["containers"][0]] = rows
        else:
            packages = rows
    return packages, rooms


def imported_names(path: Path) -> Iterator[str]:
    """Yield the full name of everything that a file imports, both modules and names from modules."""
    folder = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = folder[: len(folder) - node.level + 1] if node.level else ()
            base = ".".join((*package, *([node.module] if node.module else [])))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def find_arrows(package: str, rows: Rows) -> Arrows:
    """Return an arrow from each room of a package to every other room of the package that it imports."""
    rooms = {room for row in rows for room in row}
    arrows: Arrows = set()
    for path in sorted((ROOT / package).rglob("*.py")):
        importing = path.relative_to(ROOT / package).with_suffix("").parts[0]
        for name in imported_names(path):
            first, _, rest = name.partition(".")
            imported = rest.partition(".")[0]
            if first == package and {importing, imported} <= rooms and importing != imported:
                arrows.add((importing, imported))
    return arrows


def without_detours(arrows: Arrows) -> Arrows:
    """Leave out each arrow whose two rooms are also connected by a chain of other arrows."""
    return {(start, end) for start, end in arrows if not _reaches(arrows - {(start, end)}, start, end)}


def _reaches(arrows: Arrows, start: str, end: str) -> bool:
    reached, to_visit = {start}, [start]
    while to_visit:
        here = to_visit.pop()
        following = {imported for importing, imported in arrows if importing == here} - reached
        reached |= following
        to_visit += following
    return end in reached


def draw_package(package: str, rows: Rows, box: Box) -> list[str]:
    """Return the SVG elements that show a package and its rooms inside a box."""
    elements = [
        f'<rect class="package" {_shape(box)} rx="8"/>',
        f'<text class="name title" x="{box.left + PADDING:.0f}" y="{box.top + 26:.0f}">{escape(package)}/</text>',
    ]
    boxes = place_rooms(package, rows, box)
    for start, end in sorted(without_detours(find_arrows(package, rows))):
        elements.append(_arrow(boxes[start], boxes[end]))
    for name, room in boxes.items():
        elements += _room(ROOT / package / name, room)
    return elements


def place_rooms(package: str, rows: Rows, box: Box) -> dict[str, Box]:
    """Return the box of each room, inside the box of its package."""
    boxes: dict[str, Box] = {}
    left, width = box.left + TITLE_WIDTH, box.width - TITLE_WIDTH - PADDING
    for row_index, row in enumerate(rows):
        top = box.top + PADDING + row_index * ROW_HEIGHT
        for index, name in enumerate(row):
            percent = PLACES.get(package, {}).get(name, 100 * (index + 1) / (len(row) + 1))
            room_width = max(ROOM_WIDTH_MIN, len(name) * CHAR_WIDTH + 20)
            boxes[name] = Box(left + width * percent / 100 - room_width / 2, top, room_width, ROOM_HEIGHT)
    return boxes


def _room(path: Path, box: Box) -> list[str]:
    kind, name = ("room", f"{path.name}/") if path.is_dir() else ("module", path.name)
    return [
        f'<rect class="{kind}" {_shape(box)} rx="5"/>',
        f'<text class="name" x="{box.middle:.0f}" y="{box.top + 20:.0f}" text-anchor="middle">{escape(name)}</text>',
    ]


def _arrow(start: Box, end: Box) -> str:
    bend = min(ROW_HEIGHT, (end.top - start.bottom) * 0.6)
    return (
        f'<path class="arrow" marker-end="url(#head)" d="M{start.middle:.0f} {start.bottom:.0f} '
        f"C{start.middle:.0f} {start.bottom + bend:.0f} {end.middle:.0f} {end.top - bend:.0f} "
        f'{end.middle:.0f} {end.top - 1:.0f}"/>'
    )


def _shape(box: Box) -> str:
    return f'x="{box.left:.0f}" y="{box.top:.0f}" width="{box.width:.0f}" height="{box.height:.0f}"'


def draw() -> str:
    """Return the whole picture as SVG text."""
    packages, rooms = read_layers()
    elements: list[str] = []
    top = float(MARGIN)
    for row in packages:
        width = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / len(row)
        row_count = max(len(rooms.get(package, [])) for package in row)
        height = row_count * ROW_HEIGHT if row_count else TITLE_HEIGHT
        for index, package in enumerate(row):
            box = Box(MARGIN + index * (width + GAP), top, width, height)
            elements += draw_package(package, rooms.get(package, []), box)
        top += height + GAP
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="head" d="M0 1 L8 4 L0 7 Z"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}" width="{WIDTH}" role="img">',
            "<title>The packages and rooms of rankcurve; every arrow is an import and points down</title>",
            f"<style>{STYLE}</style><defs>{head}</defs>",
            *elements,
            "</svg>\n",
        ]
    )


def write_index() -> str:
    """Write the page with all packages, rooms and modules, in the order of the layers."""
    packages, rooms = read_layers()
    lines = [ABOUT_INDEX]
    for package in (name for row in packages for name in row):
        names = [name for row in rooms.get(package, []) for name in row]
        lines += _describe_folder(ROOT / package, "##", names)
    return "\n".join(lines).rstrip() + "\n"


def _describe_folder(folder: Path, level: str, names: list[str]) -> Iterator[str]:
    """Yield the lines that describe a folder: its purpose, its modules, then its rooms in the order of `names`."""
    place = folder.relative_to(ROOT).as_posix()
    yield from (f"{level} `{place}`", "", " ".join(_read_paragraph(folder / "__init__.py").split()), "")
    modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    for path in sorted(modules, key=lambda each: (_position(names, each.stem), each.stem)):
        yield f"- `{path.stem}`: {_summarize(_read_paragraph(path))}"
    yield ""
    inner = [each.parent for each in folder.glob("*/__init__.py")]
    for room in sorted(inner, key=lambda each: (_position(names, each.name), each.name)):
        yield from _describe_folder(room, "###", [])


def _summarize(paragraph: str) -> str:
    first, *others = re.split(r"(?<=[.!?])\s", " ".join(paragraph.split()))
    for sentence in others:
        if len(first) + len(sentence) >= SUMMARY_CHARS_MAX:
            break
        first += f" {sentence}"
    return first


def _position(names: list[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _read_paragraph(path: Path) -> str:
    """Return the first paragraph of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]


if __name__ == "__main__":
    INDEX.write_text(write_index(), encoding="utf-8")
    PICTURE.write_text(draw(), encoding="utf-8")
