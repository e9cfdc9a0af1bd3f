"""Run all benchmarks, one after the other.

    python -m benchmarks [DATA] [--quick] [--boards FOLDER] [--only NAME ...]

Each benchmark is also a program of its own. This program starts the benchmarks and prints which of them met their bars.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

# A benchmark is a module that runs itself by `report.run_program`.
_MODULES = sorted(Path(__file__).parent.glob("*.py"))
_ALL = [path.stem for path in _MODULES if "report.run_program(" in path.read_text(encoding="utf-8")]
_QUICK = ["--rows", "20000", "--seconds", "1", "--rounds", "2", "--kills", "5"]
_TIMEOUT_S = 3600


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", nargs="?", type=Path, help="folder with CSV files of real boards")
    parser.add_argument("--quick", action="store_true", help="small and short; says nothing about the bars")
    parser.add_argument("--boards", type=Path, help="keep filled boards in this folder")
    names = ", ".join(_ALL)
    parser.add_argument("--only", nargs="+", choices=_ALL, default=_ALL, metavar="NAME", help=f"run only: {names}")
    given = parser.parse_args()
    if given.data is not None and not given.data.is_dir():
        parser.error(f"there is no folder {given.data}; to run one benchmark alone: --only NAME")
    with tempfile.TemporaryDirectory(prefix="rankcurve-boards-") as own:
        arguments = ["--boards", str(given.boards or own), *(_QUICK if given.quick else [])]
        if given.data is not None:
            arguments.insert(0, str(given.data))
        ended = {name: start_benchmark(name, arguments) for name in given.only}
    print()
    for name, status in ended.items():
        print(f"{'met       ' if status == 0 else 'FELL SHORT' if status == 1 else 'failed    '}  {name}")
    return int(any(ended.values()))


def start_benchmark(name: str, arguments: list[str]) -> int:
    """Run one benchmark and return its exit status.

    The status is 0 if all bars are met and 1 if at least one is not. Any other number means that the benchmark failed.
    """
    try:
        command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
        return subprocess.run(command, check=False, timeout=_TIMEOUT_S).returncode
    except subprocess.TimeoutExpired:
        return 124


if __name__ == "__main__":
    sys.exit(main())
