"""Let posts arrive in random orders, and compare order and times of equal values with a model that knows no order.

python -m benchmarks.orders_of_arrival

The suite tries a part of these histories (`tests/storage/posting/test_orders_of_arrival.py`).

Bar: none of 10,000 random histories, each in two orders, differs from the model.
"""

import random
from pathlib import Path

from benchmarks import report
from benchmarks.options import Options
from tests.storage.arrivals import check_orders

HISTORIES = 10_000


def measure(_options: Options, _folder: Path) -> list[report.Bar]:
    differing = 0
    for seed in range(HISTORIES):
        try:
            check_orders(random.Random(seed))
        except AssertionError:
            differing += 1
    return [report.Bar(f"histories of {HISTORIES:,} that differ from the model", differing, 0, at_most=True)]


if __name__ == "__main__":
    report.run_program(measure, __doc__, f"{HISTORIES:,} random histories in two orders of arrival each")
