"""Boards on which curves are measured, drawn from one seed or read from files.

A board is an array of keys, of which smaller ones are better. Every run gets the same boards, and also the same values
when a benchmark later draws more of them for a board.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from predictor import Curve, Tally
from predictor.fit import fit_curve

Keys = NDArray[np.int64]
SEED = 11
GAP_ROWS_MAX = 10_000
# The real boards, by name: 1 if a lower score is better, else -1.
REAL_BOARDS = {"boston2014_centimin": 1, "bgg_rated_2020-11-13": -1, "atp_20241230": -1}


@dataclass(frozen=True, slots=True)
class CurveBoard:
    """A board's keys, and a function that draws more keys for the board."""

    name: str
    keys: Keys  # one key for each entry, not sorted
    draw: Callable[[np.random.Generator, int], Keys]  # returns that many new keys of the same distribution


def _high(values: NDArray[np.float64]) -> Keys:
    return -values.round().astype(np.int64)


def _runs(rng: np.random.Generator, entries: int) -> Keys:
    """Return keys in runs of random length.

    In every second run neighbours differ by 1, and in the others by random steps.
    """
    gaps: list[Keys] = []
    found, dense = 0, True
    while found < entries:
        length = int(rng.integers(1, 401))
        if dense:
            gaps.append(np.ones(length, dtype=np.int64))
        else:
            gaps.append(rng.lognormal(3, 3, length).round().astype(np.int64) + 1)
        found, dense = found + length, not dense
    return -np.cumsum(np.concatenate(gaps)[:entries])


def make_boards() -> list[CurveBoard]:
    draws: dict[str, tuple[int, Callable[[np.random.Generator, int], Keys]]] = {
        "uniform 10,000": (10_000, lambda rng, size: -rng.integers(0, 10_000, size)),
        "lognormal 343,000": (343_000, lambda rng, size: _high(rng.lognormal(10, 1.5, size))),
        "normal 1,000,000": (1_000_000, lambda rng, size: _high(rng.normal(1500, 300, size))),
        "pareto 1,000,000": (1_000_000, lambda rng, size: _high(rng.pareto(1.2, size) * 10)),
    }
    boards = [CurveBoard(name, draw(np.random.default_rng(SEED), size), draw) for name, (size, draw) in draws.items()]
    runs = _runs(np.random.default_rng(SEED), 100_000)
    return [*boards, CurveBoard("runs 100,000", runs, lambda rng, size: rng.choice(runs, size))]


def read_scores(path: Path) -> dict[str, int]:
    with path.open(newline="") as file:
        return {row["id"]: int(row["score"]) for row in csv.DictReader(file)}


def read_boards(folder: Path) -> list[CurveBoard]:
    """Read the real boards from their CSV files. A board's `draw` function picks among the board's own keys."""
    boards = []
    for name, sign in REAL_BOARDS.items():
        keys = np.array([sign * score for score in read_scores(folder / f"{name}.csv").values()], dtype=np.int64)
        boards.append(CurveBoard(name, keys, lambda rng, size, keys=keys: rng.choice(keys, size)))  # type: ignore[misc]
    return boards


def tally_keys(keys: Keys) -> Tally:
    """Return the same tally of these keys as a scan of the board."""
    values, counts = np.unique(keys, return_counts=True)
    better_counts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    offsets = (values - values[0]).astype(np.int64)
    return Tally(int(values[0]), [offsets.data], better_counts.data, len(keys))


def fit_certified(keys: Keys, knots_max: int) -> Curve:
    return fit_curve(tally_keys(keys), knots_max=knots_max, gap_rows_max=GAP_ROWS_MAX, as_of_us=0)


def count_entries_by_key(keys: Keys) -> list[tuple[int, int]]:
    """Return (key, number of entries with this key), in ascending order of the keys."""
    values, counts = np.unique(keys, return_counts=True)
    return list(zip(values.tolist(), counts.tolist(), strict=True))
