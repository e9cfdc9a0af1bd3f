"""Makes sure that a process imports the packages of this service, and no others of the same names.

Their names are common: `config`, `jobs`, `storage`. A folder of PYTHONPATH, and the working directory with `python -m`,
come before the installed packages. So a foreign `config` there would be imported instead of ours. `install_finder`
prevents this. The order of all other imports stays as it is.

This file is also a program: `python -P own_packages.py MODULE …` runs a module as `python -m MODULE …` does, after it
has installed the finder. `python_command` returns such a command for child processes.
"""

import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

PACKAGES = frozenset(("config", "querybuilder", "predictor", "storage", "jobs", "service"))
_FOLDER = str(Path(__file__).parents[1])


class _OwnPackages:
    """Finds our packages in their own folder. For every other module, the next finder is asked."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [_FOLDER], target) if name in PACKAGES else None


def install_finder() -> None:
    """From now on, import our packages from the folder that this file belongs to."""
    sys.meta_path.insert(0, _OwnPackages)


def python_command(module: str, *arguments: str) -> list[str]:
    """Return a command that runs a module of our packages in a process of its own, with the finder."""
    # With -P, the folder of this file is not on the import path. Its modules, such as `http`, have names of the
    # standard library.
    return [sys.executable, "-P", __file__, module, *arguments]


if __name__ == "__main__":
    install_finder()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
