"""Measure how soon queued posts are visible on PostgreSQL, on a quiet machine and while a core is busy otherwise.

    python -m benchmarks.queued_latency [--rows N] [--seconds S]

10,000 posts a second are sent for 100,000 owners, for a minute in each case. Every 10 seconds, one of four job
processes is killed. `queued_posts` tells how the posts are checked.

Bars: on the quiet machine, a post is visible at most 0.8 s after it was sent (p99). With a busy core the queue keeps
up: no more posts wait than are sent in 5 seconds. Nothing is lost, applied twice, or out of order.
"""

import shlex
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.options import Options
from benchmarks.queued_posts import attack_queue

_SENT_PER_S = 10_000
_CASES = {"quiet": "", "one core busy": shlex.join([sys.executable, "-c", "while True: pass"])}
_LATENCY_S_MAX = {"quiet": 0.8}
_WAITING_MAX = {"one core busy": 5 * _SENT_PER_S}


def measure(options: Options, folder: Path) -> list[report.Bar]:
    bars, faults = [], 0
    for case, command in _CASES.items():
        print(f"   {case}:")
        found = attack_queue(options, folder, sent_per_s=_SENT_PER_S, during=command)
        faults += sum(found.faults.values())
        latency = found.latency_p99_s
        bars += [
            report.Bar(f"{case}: accepted to visible, p99", latency, _LATENCY_S_MAX.get(case), " s", at_most=True),
            report.Bar(f"{case}: most posts that waited", found.waiting_most, _WAITING_MAX.get(case), at_most=True),
        ]
    return [*bars, report.Bar("posts lost, applied twice or out of order", faults, 0, at_most=True)]


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"queued latency: {{rows:,}} owners, {_SENT_PER_S:,}/s for {{seconds:g}} s, twice",
        rows=100_000,
        seconds=60,
    )
