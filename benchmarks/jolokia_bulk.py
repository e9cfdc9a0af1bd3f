"""Measure the time of a bulk of 100 Jolokia reads, on one process with SQLite and on two workers with PostgreSQL.

    python -m benchmarks.jolokia_bulk [--rows N]     (N bulks, but at least 100)

The bulks are sent one after the other on one connection. They read objects of all kinds, and every read of every bulk
must be answered.

Bar: p99 at most 20 ms.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from statistics import quantiles

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, board_spec, create_board, refresh_columns
from benchmarks.client import HOST, BadAnswerError, Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import Server, free_port, rankcurve_command, serve_file
from tests.servers import FAST, postgres

_READS = 100
_WARM_UP = 20
_P99_MS_MAX = 20.0
_MBEANS: tuple[tuple[str, str | None], ...] = (
    ("rankcurve:type=RequestProcessor,name=post", "RequestSeconds"),
    ("rankcurve:type=RequestProcessor,name=post", "Requests"),
    ("rankcurve:type=Throttle", None),
    ("rankcurve:type=Job,name=fold", None),
    ("rankcurve:type=Cache", "CurvesCorrupt"),
    (f"rankcurve:type=Board,name={BOARD}", None),
    (f"rankcurve:type=Predictor,board={BOARD},column={COLUMN}", None),
    ("java.lang:type=Memory", "HeapMemoryUsage"),
    ("java.lang:type=Runtime", "Uptime"),
    ("rankcurve:name=common,type=Pool", None),
)


def bulk_body() -> bytes:
    requests = [
        {"type": "read", "mbean": mbean, **({"attribute": attribute} if attribute else {})}
        for mbean, attribute in (_MBEANS[index % len(_MBEANS)] for index in range(_READS))
    ]
    return json.dumps(requests).encode()


async def time_bulks(port: int, bulks: int) -> list[float]:
    """Send `bulks` bulks. Return the milliseconds of each bulk. Raises BadAnswerError if a read was not answered."""
    await create_board(port, BOARD, board_spec([COLUMN]))
    connection, body, found = Connection(port), bulk_body(), []
    await connection.call_ok("POST", f"/v1/leaderboards/{BOARD}/posts", {"owner": "ada", "stats": {COLUMN: 1}})
    await refresh_columns(port, BOARD, [COLUMN])
    for number in range(bulks + _WARM_UP):
        begun = time.perf_counter()
        status, answer = await connection.call("POST", "/jolokia/read", body)
        took_ms = 1000 * (time.perf_counter() - begun)
        wrong = [each for each in json.loads(answer) if each["status"] != 200]
        if status != 200 or wrong:
            raise BadAnswerError(f"{status} {wrong[:2]}")
        if number >= _WARM_UP:
            found.append(took_ms)
    connection.close()
    return found


def measure(options: Options, folder: Path) -> list[report.Bar]:
    bulks = max(100, options.rows)
    with serve_file(folder / "board.db") as server:
        alone = asyncio.run(time_bulks(server.port, bulks))
    port = free_port()
    with postgres(FAST) as database:
        command = [*rankcurve_command(), "serve", "--host", HOST, "--port", str(port), "--workers", "2"]
        command += ["--store", database.create_database("bulk")]
        with Server(command, folder, port=port, ready_path="/readyz") as node:
            shared = asyncio.run(time_bulks(node.port, bulks))
    named = {"one process, SQLite": alone, "two workers, PostgreSQL": shared}
    p99_ms = {name: quantiles(found, n=100)[98] for name, found in named.items()}
    report.print_table(
        ("", "p50 ms", "p99 ms", "most ms"),
        [[name, quantiles(found, n=2)[0], p99_ms[name], max(found)] for name, found in named.items()],
    )
    return [
        report.Bar(f"p99 of a bulk of {_READS} reads, {name}", p99, _P99_MS_MAX, " ms", at_most=True)
        for name, p99 in p99_ms.items()
    ]


def main() -> int:
    options = parse_options(__doc__, rows=1_000)
    return report.run_benchmark(
        options, f"Jolokia: bulks of {_READS} reads, {max(100, options.rows):,} of them", measure
    )


if __name__ == "__main__":
    sys.exit(main())
