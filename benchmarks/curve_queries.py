"""Request ten million ranks from fitted and live curves of random boards, and count the ranks that break a promise.

    python -m benchmarks.curve_queries [--rows N]

Each rank is compared with a count of the current entries. The requested keys are values, their neighbours, and keys in
between. They are requested in ascending order, so that a rank lower than the previous rank is noticed.

Bar: every rank is a whole number in [1, n + 1], within its bracket and its certificate, and not lower than the previous
rank.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.curve_boards import GAP_ROWS_MAX, Keys, tally_keys
from benchmarks.options import Options, parse_options
from predictor import AsOf, Curve, LiveCounts, LiveCurve
from predictor.fit import fit_curve

_ASKED = 20_000  # number of keys requested in one state of one board
_STATES = 5  # states of a board: one right after the fit, and one after each of four rounds of changes


def _draw_keys(rng: np.random.Generator, entries: int) -> Keys:
    """Return keys with ties. Their distribution (even, long-tailed or other), sign and lattice step are random."""
    step = int(rng.choice([1, 1, 5, 250]))
    draws = (
        rng.integers(-entries, entries, entries),
        -rng.lognormal(10, 1.5, entries).round(),
        rng.normal(1500, 300, entries).round(),
        rng.integers(0, max(2, entries // 50), entries),
        np.cumsum(rng.choice([1, 1, 1, 400], entries)),
    )
    keys: Keys = np.asarray(draws[int(rng.integers(len(draws)))], dtype=np.int64) * step
    return keys


def _draw_asked(rng: np.random.Generator, keys: Keys) -> Keys:
    near = rng.choice(keys, _ASKED // 2) + rng.integers(-1, 2, _ASKED // 2)
    anywhere = rng.integers(int(keys.min()) - 10, int(keys.max()) + 10, _ASKED // 2)
    return np.sort(np.concatenate([near, anywhere]))


def count_broken(curve: Curve | LiveCurve, keys: Keys, asked: Keys) -> int:
    """Return how many times the ranks of `asked` break a bracket, the order, the range of ranks, or the certificate."""
    broken, before = 0, 1
    certificate = curve.certificate if isinstance(curve, Curve) else None
    for key, better in zip(asked.tolist(), np.searchsorted(np.sort(keys), asked).tolist(), strict=True):
        rank, low, high, _ = curve.locate(key)
        true_rank = 1 + better
        broken += not low <= true_rank <= high
        broken += type(rank) is not int or not max(before, low) <= rank <= min(high, curve.total + 1)
        broken += certificate is not None and abs(rank - true_rank) / true_rank > certificate
        before = rank
    return broken


def _states(rng: np.random.Generator, keys: Keys) -> Iterator[tuple[Curve | LiveCurve, Keys]]:
    """Yield the fitted curve with its keys, then, after each round of changes, the live curve with the changed keys."""
    curve = fit_curve(tally_keys(keys), knots_max=int(rng.integers(2, 500)), gap_rows_max=GAP_ROWS_MAX, as_of_us=0)
    yield curve, keys
    counts, new = LiveCounts(curve), _draw_keys(rng, len(keys))
    for _ in range(_STATES - 1):
        chosen = rng.choice(len(keys), max(1, len(keys) // 10), replace=False)
        drawn = rng.choice(new if rng.random() < 0.3 else keys, len(chosen))
        counts.count_moves(zip(keys[chosen].tolist(), drawn.tolist(), strict=True))
        keys = keys.copy()
        keys[chosen] = drawn
        yield LiveCurve(curve, counts, as_of=AsOf(0)), keys


def measure(options: Options, folder: Path) -> list[report.Bar]:
    queries = broken = boards = 0
    while queries < options.rows:
        rng = np.random.default_rng(boards)
        for curve, keys in _states(rng, _draw_keys(rng, int(rng.integers(1, 20_000)))):
            asked = _draw_asked(rng, keys)
            broken += count_broken(curve, keys, asked)
            queries += len(asked)
        boards += 1
    return [report.Bar(f"promises broken in {queries:,} ranks of {boards} boards", broken, 0, at_most=True)]


def main() -> int:
    options = parse_options(__doc__, rows=10_000_000)
    return report.run_benchmark(options, f"{options.rows:,} ranks of random boards, fitted and live", measure)


if __name__ == "__main__":
    sys.exit(main())
