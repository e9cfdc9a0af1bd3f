"""Test that the architecture page, its diagram and the glossary agree with the code."""

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("config", "querybuilder", "predictor", "storage", "jobs", "service")
ROOM_MODULES_MAX = 14
# Names in essays that no module has: names from examples, and names of other projects.
IN_EXAMPLES = {
    "SomeLimits", "best_first", "count_profiles", "delete_profile", "dial_from", "profiles_left", "yield",
    "OpenAPI", "OpenTelemetry", "PostgreSQL", "jolokia_protocol", "rankcurve",
}  # fmt: skip
PLACE = re.compile(rf"`((?:{'|'.join(PACKAGES)}|docs)/[\w/.]+)`")


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def folders() -> list[Path]:
    return [folder.parent for package in PACKAGES for folder in sorted((ROOT / package).rglob("__init__.py"))]


def test_the_picture_and_the_index_of_the_rooms_are_what_their_script_writes() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "draw_rooms.py"))
    assert text_of("rooms.svg") == script["draw"](), "python docs/draw_rooms.py draws it again"
    assert text_of("rooms.md") == script["write_index"](), "python docs/draw_rooms.py writes it again"


def test_the_index_has_every_room_and_every_module_with_its_purpose() -> None:
    index, names = text_of("rooms.md"), [folder.relative_to(ROOT).as_posix() for folder in folders()]
    assert [name for name in names if not re.search(rf"^##+ `{name}`\n\n\S", index, re.MULTILINE)] == []
    modules = [path for folder in folders() for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(re.findall(r"^- `\w+`: \S.+[.:]$", index, re.MULTILINE)) == len(modules)


def test_no_folder_holds_more_modules_than_a_reader_takes_in() -> None:
    counts = {folder: len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) for folder in folders()}
    assert [f"{folder}: {count}" for folder, count in counts.items() if count > ROOM_MODULES_MAX] == []


def test_every_module_that_a_page_names_exists() -> None:
    for page in ("architecture.md", "glossary.md", "rooms.md"):
        places = PLACE.findall(text_of(page))
        assert len(places) > 20
        assert [f"{page}: {place}" for place in places if not (ROOT / place).exists()] == []


def names_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.alias):
            yield from node.name.split(".")
        elif isinstance(node, ast.Name | ast.Attribute | ast.arg):
            yield node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else node.arg


def test_every_name_in_the_essay_of_a_folder_exists() -> None:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    trees = {path: ast.parse(path.read_text("utf-8")) for path in paths}
    known = {name for tree in trees.values() for name in names_in(tree)} | IN_EXAMPLES
    known |= {part for path in paths for part in path.relative_to(ROOT).with_suffix("").parts}
    unknown = []
    for folder in folders():
        essay = ast.get_docstring(trees[folder / "__init__.py"]) or ""
        # Names of classes and functions, such as `PostTransaction` and `read_entry`, anywhere in the essay.
        names = set(re.findall(r"\b(?:[A-Z][a-z]+[A-Z]\w+|[a-z]+_\w+)\b", essay))
        names |= {part for quoted in re.findall(r"`([\w.]+)`", essay) for part in quoted.split(".")}
        unknown += [f"{folder.relative_to(ROOT)}: {name}" for name in sorted(names - known)]
    assert unknown == []


def terms() -> list[tuple[list[str], Path]]:
    """Return, for each row of the glossary, its terms and the file or folder in its last cell."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| `([^`|]+)` \|$", text_of("glossary.md"), re.MULTILINE)
    lines = [line for line in text_of("glossary.md").splitlines() if line.startswith("|")]
    heads = [line for line in lines if line.startswith(("| term |", "| --- |"))]
    assert len(rows) == len(lines) - len(heads) > 50, "each row has terms, a meaning and one place"
    return [([term.strip() for term in cell.split(",")], ROOT / place) for cell, place in rows]


def letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())


def test_no_term_is_explained_twice() -> None:
    explained = [term.lower() for names, _ in terms() for term in names]
    assert sorted(explained) == sorted(set(explained))


def test_every_term_is_used_in_the_place_that_the_glossary_names() -> None:
    for names, place in terms():
        assert place.exists(), f"{names}: no {place}"
        files = [place] if place.is_file() else [place, *sorted(place.rglob("*.py"))]
        text = letters("".join(path.stem + (path.read_text("utf-8") if path.is_file() else "") for path in files))
        assert [name for name in names if letters(name) not in text] == [], f"not a word of {place.relative_to(ROOT)}"
