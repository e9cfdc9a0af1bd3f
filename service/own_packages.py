"""Makes sure that a process imports this service's packages, and not others with the same names.

The names are common: `config`, `jobs`, `storage`. Python searches the folders of PYTHONPATH, and with `python -m` the
working directory, before the installed packages, so a foreign `config` there would be imported instead of ours.
`install_finder` prevents this, and leaves the import of other packages alone.

This file is also a program: `python -P own_packages.py MODULE …` installs the finder, then runs the module as `python
-m MODULE …` does. `python_command` returns such a command for child processes.
"""

import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

PACKAGES = frozenset(("config", "querybuilder", "predictor", "storage", "jobs", "service"))
# structlog imports `rich` if it can, to colour tracebacks on a terminal. Without it, a process of a node starts 16 ms
# sooner and needs 3 MB less.
_WORKER = "service.processes.worker"
_FOLDER = str(Path(__file__).parents[1])


class _OwnPackages:
    """An import finder that looks for our packages in our folder only, and leaves other modules to other finders."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [_FOLDER], target) if name in PACKAGES else None


def install_finder() -> None:
    """Make this process import our packages only from the folder that contains the package of this file."""
    sys.meta_path.insert(0, _OwnPackages)


def python_command(module: str, *arguments: str) -> list[str]:
    """Build the command line of a process that installs the finder and then runs a module from our packages."""
    # With -P, Python does not add the folder of this file to the import path. Packages there, such as `http`, would
    # hide those of the standard library.
    return [sys.executable, "-P", __file__, module, *arguments]


if __name__ == "__main__":
    install_finder()
    del sys.argv[0]
    if sys.argv[0] == _WORKER:
        sys.modules["rich"] = None  # type: ignore[assignment]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
