"""The command line that all benchmarks share, with options for a run's size, length and folder.

The bars are meant for the default options. Other options can make a run smaller, and its heading then shows the size.
"""

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    rows: int  # number of entries on the measured board
    seconds: float  # length of one measured round
    rounds: int  # measured rounds of each contestant
    folder: Path  # where stores are made; a run measures the durable writes of this disk
    boards: Path | None  # filled boards are kept in this folder for later runs; if None, each run fills new boards
    data: Path | None  # folder with the CSV files of the real boards
    kills: int
    contests: int  # that end while `killed_seasons` kills
    store: str | None  # the database that a benchmark of partitions runs on; None: a PostgreSQL server of its own
    into: str | None  # an empty cluster of Citus, into which `citus_page` restores a store
    during: str  # the shell command that runs at the same time; empty: none
    segments: int  # of the board of several segments
    fronts: int  # front ends of each contestant of `segments`
    ways: list[str]  # the ways of `segments` to measure: the beginnings of their names; empty: all
    commit: str  # the commit with which `against_commit` compares this tree
    url: str | None  # the running Nakama with which `against_nakama` compares
    figures: Path | None  # the file that gets the bars as JSON; None: they are only printed


def parse_options(doc: str | None, *, rows: int = 1_000_000, seconds: float = 5.0, rounds: int = 5) -> Options:
    """Parse the command line. `rows`, `seconds` and `rounds` are the benchmark's own defaults."""
    program = f"python -m benchmarks.{Path(sys.argv[0]).stem}"
    parser = argparse.ArgumentParser(prog=program, description=(doc or "").strip().splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, help="folder with CSV files of real boards (id,score)")
    parser.add_argument("--rows", type=_positive(int), default=rows, help=f"entries of the board ({rows:,})")
    parser.add_argument("--seconds", type=_positive(float), default=seconds, help=f"of a round ({seconds})")
    parser.add_argument("--rounds", type=_positive(int), default=rounds, help=f"rounds of each contestant ({rounds})")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where stores are made")
    parser.add_argument("--boards", type=Path, help="keep filled boards in this folder, and use those already there")
    parser.add_argument("--kills", type=_positive(int), default=100, help="kills of the service (100)")
    parser.add_argument("--contests", type=_positive(int), default=50, help="contests of killed_seasons (50)")
    parser.add_argument("--store", metavar="URL", help="the database that a benchmark of partitions runs on")
    parser.add_argument("--into", metavar="URL", help="the cluster into which citus_page restores a store")
    meanwhile = "run this shell command meanwhile (partitions_disturbed, queued_posts)"
    parser.add_argument("--during", metavar="COMMAND", default="", help=meanwhile)
    parser.add_argument("--segments", type=_positive(int), default=4, help="of a board with several of them (4)")
    parser.add_argument("--fronts", type=_positive(int), default=1, help="front ends of each contestant (1)")
    parser.add_argument("--ways", nargs="+", metavar="NAME", default=[], help="beginnings of what segments measures")
    parser.add_argument("--commit", default="HEAD~1", help="the commit that against_commit compares with (HEAD~1)")
    nakama = (
        "a running Nakama with a leaderboard `season` (desc, incr, not authoritative, with ranks), for against_nakama"
    )
    parser.add_argument("--url", metavar="URL", help=nakama)
    parser.add_argument("--figures", type=Path, metavar="FILE", help="write the measured bars to this file, as JSON")
    given = parser.parse_args()
    return Options(**vars(given))


def _positive(kind: Callable[[str], int | float]) -> Callable[[str], int | float]:
    def convert(text: str) -> int | float:
        number = kind(text)
        if number <= 0:
            raise argparse.ArgumentTypeError("must be greater than 0")
        return number

    return convert


@contextlib.contextmanager
def working_folder(options: Options) -> Iterator[Path]:
    """Yield a new folder for this run, and delete it at the end, even if an exception or SIGTERM ends the run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rankcurve-bench-", dir=options.folder) as name:
        yield Path(name)
