"""The page about the architecture, its picture and the glossary name what there is."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
PACKAGES = ("config", "querybuilder", "predictor", "storage", "jobs", "service")
ROOM_MODULES_MAX = 14
PLACE = re.compile(rf"`((?:{'|'.join(PACKAGES)}|docs)/[\w/.]+)`")


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def folders() -> list[Path]:
    """Return the packages and their rooms."""
    return [folder.parent for package in PACKAGES for folder in sorted((ROOT / package).rglob("__init__.py"))]


def draw_rooms() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_rooms", ROOT / "docs" / "draw_rooms.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_of_the_rooms_is_what_its_script_draws() -> None:
    drawn = draw_rooms().draw()
    assert text_of("rooms.svg") == drawn, "python docs/draw_rooms.py draws it again"


def test_every_room_is_described() -> None:
    names = [folder.relative_to(ROOT).as_posix() for folder in folders()]
    assert [name for name in names if f"`{name}`" not in text_of("architecture.md")] == []


def test_no_folder_holds_more_modules_than_a_reader_takes_in() -> None:
    counts = {folder: len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) for folder in folders()}
    assert [f"{folder}: {count}" for folder, count in counts.items() if count > ROOM_MODULES_MAX] == []


def test_every_module_that_a_page_names_exists() -> None:
    for page in ("architecture.md", "glossary.md"):
        places = PLACE.findall(text_of(page))
        assert len(places) > 20
        assert [f"{page}: {place}" for place in places if not (ROOT / place).exists()] == []


def test_every_module_of_a_room_that_its_description_names_exists() -> None:
    descriptions = re.findall(r"^- \*\*`([\w/]+)`\*\*(.+?)(?=^- |^\n|^#|\Z)", text_of("architecture.md"), re.M | re.S)
    assert len(descriptions) > 20
    for room, description in descriptions:
        known = {path.stem for path in (ROOT / room).rglob("*")} | {
            "problems",
            "records",
            "rankcurve",
            "contract",
            "storage",
        }
        named = re.findall(r"`([a-z]\w*)`", description)
        assert [f"{room}: {name}" for name in named if name not in known] == []


def test_no_term_is_explained_twice() -> None:
    terms = [
        term.strip()
        for cell in re.findall(r"^\| ([^|]+) \|", text_of("glossary.md"), re.M)
        for term in cell.split(",")
        if term.strip() not in ("term", "---")
    ]
    assert len(terms) > 50
    assert sorted(terms) == sorted(set(terms))
