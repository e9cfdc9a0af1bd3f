"""Print the number of lines of each room, the longest files, and small modules that only one module imports.

Run `python tests/report_sizes.py`, or `make check`. The report limits nothing.

A small module that only one other module imports often reads better inside that module.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("config", "querybuilder", "predictor", "storage", "jobs", "service")
LONGEST_FILES = 10
SMALL_LINES_MAX = 59


def count_lines() -> dict[Path, int]:
    """Return the number of lines of every Python file in the packages, by the file's path from the root."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {path.relative_to(ROOT): len(path.read_bytes().splitlines()) for path in paths}


def find_single_importers() -> dict[str, str]:
    """Return, for each module that only one other module imports, the name of that importer."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    importers = {module: graph.find_modules_that_directly_import(module) for module in graph.modules}
    return {module: next(iter(found)) for module, found in importers.items() if len(found) == 1}


def main() -> None:
    lines = count_lines()
    print(f"{sum(lines.values()):7,} lines in {len(lines)} files of the packages")
    by_room = Counter[str]()
    for path, count in lines.items():
        by_room[path.parent.as_posix()] += count
    for room, count in by_room.most_common():
        print(f"{count:7,} {room}")
    print("the longest files")
    for path, count in Counter(lines).most_common(LONGEST_FILES):
        print(f"{count:7,} {path}")
    print(f"modules of at most {SMALL_LINES_MAX} lines with one importer")
    for module, importer in sorted(find_single_importers().items()):
        count = lines.get(Path(*module.split(".")).with_suffix(".py"), SMALL_LINES_MAX + 1)
        if count <= SMALL_LINES_MAX:
            print(f"{count:7,} {module}, imported by {importer}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
