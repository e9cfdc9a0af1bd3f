"""Run `rankcurve` in a process whose clock is stepped an hour ahead and an hour back.

    python -m benchmarks.stepped_clock SECONDS serve ...

Only the time of day that Python returns is changed. The monotonic clock and the store's clock stay correct.
"""

import sys
import time

_HOUR_NS = 3_600 * 10**9


def step_clock(every_s: float) -> None:
    """Make this process read the correct time, then an hour ahead, then an hour behind, each for `every_s` seconds."""
    true_ns, begun_s = time.time_ns, time.monotonic()

    def stepped_ns() -> int:
        turn = int((time.monotonic() - begun_s) / every_s) % 3
        return true_ns() + (0, _HOUR_NS, -_HOUR_NS)[turn]

    time.time_ns = stepped_ns
    time.time = lambda: stepped_ns() / 1e9


def main() -> None:
    step_clock(float(sys.argv.pop(1)))
    from service.cli import main as rankcurve

    rankcurve()


if __name__ == "__main__":
    main()
