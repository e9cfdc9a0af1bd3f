"""Joins the sources in `page/` into the few files that browsers load: a script and a style sheet for each page.

    theme.js ── runs before the first paint ──┐
    api.js ── function, returns its exports ──┤
    main.js ── function, as all its imports ──┴──> dashboard.js        style.css, parts.css … ──> dashboard.css

Each module becomes a function that takes what it imports from the results of earlier functions, and returns what it
exports. So the names of a module stay its own. A comment with the name of its source precedes each part.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parent / "page"
_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "\./(?P<source>[\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?P<kept>(?:async )?(?:function\*?|class|const) (?P<name>\w+))", re.MULTILINE)
_UNKNOWN = re.compile(r"^(?:import|export)\b.*|\bimport\(", re.MULTILINE)


class Joined(NamedTuple):
    """The parts of a file. `first` is a script that runs at once; `main` is a module that runs with the document."""

    styles: tuple[str, ...] = ()
    first: str = ""
    main: str = ""


JOINED = {
    "dashboard.css": Joined(styles=("style.css", "parts.css", "node.css")),
    "dashboard.js": Joined(first="theme.js", main="main.js"),
    "docs.css": Joined(styles=("style.css", "parts.css", "api_page.css")),
    "docs.js": Joined(first="theme.js", main="api_page.js"),
}
UNJOINED = ("index.html", "docs.html", "icon.svg")


class UnjoinableError(Exception):
    """A module imports itself, or what is not exported, or in a form that `join_modules` does not know."""


def read_files() -> dict[str, str]:
    """Return the text of each file that browsers load, by name."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(PAGE.iterdir()) if path.is_file()}
    files = {name: sources[name] for name in UNJOINED}
    return files | {name: "".join(_parts(sources, joined)) for name, joined in JOINED.items()}


def _parts(sources: Mapping[str, str], joined: Joined) -> Iterator[str]:
    for name in joined.styles:
        yield f"/* {name} */\n{sources[name]}"
    if joined.main:
        yield f"// {joined.first}\n{sources[joined.first]}"
        yield join_modules(sources, joined.main)


def join_modules(sources: Mapping[str, str], main: str) -> str:
    """Return one script that runs a module, and those that it imports, when the document has been read.

    Raises:
        UnjoinableError: see there.
    """
    ordered = order_modules(sources, main)
    exports = {name: {found["name"] for found in _EXPORT.finditer(sources[name])} for name in ordered}
    for name in ordered:
        for found in _IMPORT.finditer(sources[name]):
            taken = {each.split()[0] for each in found["names"].split(",") if each.strip()}
            if missing := taken - exports[found["source"]]:
                raise UnjoinableError(f"{name}: {found['source']} does not export {', '.join(sorted(missing))}")
    parts = "".join(_write_module(name, sources[name]) for name in ordered)
    return (
        f'document.addEventListener("DOMContentLoaded", () => {{\n"use strict";\nconst modules = {{}};\n{parts}}});\n'
    )


def order_modules(sources: Mapping[str, str], main: str) -> list[str]:
    """Return the names of a module and of those that it imports, each after its own imports."""
    ordered: list[str] = []

    def add_module(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise UnjoinableError(f"{' imports '.join((*importers, name))}")
        if name not in ordered:
            for found in _IMPORT.finditer(sources[name]):
                add_module(found["source"], (*importers, name))
            ordered.append(name)

    add_module(main, ())
    return ordered


def _write_module(name: str, source: str) -> str:
    taken = "".join(
        f'const {{{found["names"].replace(" as ", ": ")}}} = modules["{found["source"]}"];\n'
        for found in _IMPORT.finditer(source)
    )
    body = _IMPORT.sub("", source)
    exported = ", ".join(found["name"] for found in _EXPORT.finditer(body))
    body = _EXPORT.sub(r"\g<kept>", body)
    if unknown := _UNKNOWN.search(body):
        raise UnjoinableError(f"{name}: {unknown[0]}")
    return f'// {name}\nmodules["{name}"] = (() => {{\n{taken}{body}\nreturn {{ {exported} }};\n}})();\n'
