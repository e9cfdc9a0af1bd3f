"""Run all benchmarks, one after the other.

    python -m benchmarks [DATA] [--quick] [--boards FOLDER] [--only NAME ...]

Each benchmark is also a program of its own. This program starts the benchmarks and prints which of them met their bars.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

_ALL = (
    "skip_quality",
    "bucket_study",
    "live_accuracy",
    "brackets_as_of",
    "start_to_answer",
    "start_cpu",
    "kill9",
    "client_faults",
    "memcached_faults",
    "postgres_restarts",
    "standby_promoted",
    "journal_partitions",
    "partitions_disturbed",
    "job_owners",
    "jobs_away",
    "refresh_343k",
    "curve_accuracy",
    "positions",
    "single_posts",
    "busy_season",
    "batch_posts",
    "batch_posts_postgres",
    "change_log_cost",
    "rebuild",
    "exact_anywhere",
    "deep_pages",
    "family_posts",
    "queued_posts",
    "queued_latency",
    "simulated_year",
    "archives",
    "killed_archive",
    "sizes",
    "shared_tables",
    "lease_latency",
    "lease_race",
    "lease_simulation",
    "halved_capacity",
    "against_redis",
    "against_commit",
    "dashboard",
    "large_board",
    "segments",
)
_QUICK = ["--rows", "20000", "--seconds", "1", "--rounds", "2", "--kills", "5"]
_TIMEOUT_S = 3600


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("data", nargs="?", type=Path, help="folder with CSV files of real boards")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small boards and short rounds: shows that everything runs, says nothing about the bars",
    )
    parser.add_argument(
        "--boards", type=Path, help="keep filled boards in this folder; without it they are deleted at the end"
    )
    parser.add_argument(
        "--only", nargs="+", choices=_ALL, default=_ALL, metavar="NAME", help=f"run only these of: {', '.join(_ALL)}"
    )
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

    The status is 0 if all bars are met, 1 if at least one bar is not met, and another number if the benchmark failed.
    """
    try:
        return subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", *arguments], check=False, timeout=_TIMEOUT_S
        ).returncode
    except subprocess.TimeoutExpired:
        return 124


if __name__ == "__main__":
    sys.exit(main())
