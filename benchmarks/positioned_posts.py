"""Measure what a client saves that asks for an owner's position in the post, instead of in a second request.

    python -m benchmarks.positioned_posts [--rows N] [--seconds S] [--rounds N]

32 clients post for random owners: with the position in the answer (`?positions=`), with a request for the position
after each post, and without. An owner process with one front answers.

Bar: with 32 clients, the rate of posts with positions is at least 1.4 times the rate of pairs of a post and a request.
"""

from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, prepare_store
from benchmarks.options import Options
from benchmarks.servers import serve_file

CLIENTS = 32
_WITH, _PAIRS, _WITHOUT = "with positions", "post, then positions", "without positions"


def measure(options: Options, folder: Path) -> list[report.Bar]:
    board = f"/v1/leaderboards/{BOARD}"
    with serve_file(prepare_store(options, folder, rows=options.rows)) as server:
        ways = {
            _WITH: (f"{board}/posts?positions={COLUMN}", ("", "")),
            _PAIRS: (f"{board}/posts", (f"{board}/entries/", f"/positions?columns={COLUMN}")),
            _WITHOUT: (f"{board}/posts", ("", "")),
        }
        contestants = {
            name: load.wrk_contestant(
                load.Target(server.url, path, column=COLUMN, rows=options.rows, then=then),
                connections=CLIENTS,
                seconds=options.seconds,
            )
            for name, (path, then) in ways.items()
        }
        figures = load.compare(contestants, rounds=options.rounds)
    requests_of_pairs = load.median_ratio(figures[_WITH], figures[_PAIRS])
    return [report.Bar(f"posts with positions / pairs of requests, {CLIENTS} clients", 2 * requests_of_pairs, 1.4)]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "posts with positions: {rows:,} rows, {rounds} rounds of {seconds:g} s")
