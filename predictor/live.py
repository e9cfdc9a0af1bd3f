"""Keeps a fitted curve correct while its board changes.

`LiveCounts` counts the entries that came or left since the fit, for each of the curve's knots and gaps. A move is a
change to one owner's key, and an entry that comes or leaves is a move, too.

    Curve (the fit) + LiveCounts (moves since the fit) ──> LiveCurve, which returns ranks as of the last move counted

Brackets come from exact counts, so the true rank always lies in its bracket. Each move into, out of or within a gap can
push the estimate and the true rank one further apart, at worst always in the same direction. One is added for rounding:

    |rank - true rank| <= min(distance to the ends of the bracket, error of the fit + moves + 1)

Several moves of an owner may be counted as one move, from the first key to the last. The error bound stays valid,
because only the state before the moves and the state after the moves matter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate, chain
from operator import add
from typing import ClassVar

import msgspec

from .codec import decode_checked, encode_checked, pack_int, unpack_int
from .curve import Curve, FitMethod, Knot
from .errors import CurveCorruptError, KnotsInvalidError
from .locate import KnotRanks

Move = tuple[int | None, int | None]  # (key before, key after); None: the owner had no entry in the column at that time


class _StoredCounts(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The fields of `LiveCounts` as they are encoded. Keys may have any size, so they are stored as bytes."""

    off_lattice: bool
    best: bytes | None
    worst: bytes | None
    runs: list[int]
    gaps: list[int]
    moves: list[int]


_DECODER = msgspec.msgpack.Decoder(_StoredCounts)


class LiveCounts:
    """Counts the changes since a fit, for each knot and each gap. `count_moves` adds changes to this object."""

    __slots__ = ("_step", "best", "gaps", "keys", "moves", "off_lattice", "runs", "worst")

    def __init__(self, curve: Curve) -> None:
        self.keys = tuple([knot.key for knot in curve.knots])
        self._step = curve.step
        self.runs = [0] * len(self.keys)  # for each knot, the change of its number of entries since the fit
        self.gaps = [0] * (len(self.keys) + 1)  # for each gap, even open ones, the change of its number of entries
        self.moves = [0] * (len(self.keys) + 1)  # for each gap, the number of moves into, out of and within it
        self.off_lattice = False  # whether any new key is off the fit's lattice; if so, keys must not be rounded
        self.best: int | None = None  # the best new key ever in the open gap at the better end
        self.worst: int | None = None  # the worst new key ever in the open gap at the worse end

    def _note(self, j: int, key: int) -> None:
        """Update `off_lattice`, `best` and `worst` after an owner got a key within gap j."""
        keys = self.keys
        if self._step != 1 and keys and (key - keys[0]) % self._step:
            self.off_lattice = True
        if j == 0 and (self.best is None or key < self.best):
            self.best = key
        if j == len(keys) and (self.worst is None or key > self.worst):
            self.worst = key

    def count_moves(self, moves: Iterable[Move]) -> int:
        """Count changes to owners' keys, except those to the same key, and return how many were counted."""
        keys, knot_count, runs, gaps, moved = self.keys, len(self.keys), self.runs, self.gaps, self.moves
        ends, plain, count = (0, knot_count), self._step == 1, 0
        for before, after in moves:
            if before == after:
                continue
            count += 1
            left = -1
            if before is not None:
                left = bisect_left(keys, before)
                if left < knot_count and keys[left] == before:
                    runs[left] -= 1
                    left = -1
                else:
                    gaps[left] -= 1
                    moved[left] += 1
            if after is not None:
                j = bisect_left(keys, after)
                if j < knot_count and keys[j] == after:
                    runs[j] += 1
                    continue
                gaps[j] += 1
                if j != left:
                    moved[j] += 1
                if not plain or j in ends:
                    self._note(j, after)
        return count

    @property
    def moved(self) -> int:
        """The number of times that an owner's key came into, left or changed within a gap, added up over all gaps."""
        return sum(self.moves)

    def find_ends(self) -> tuple[int, int]:
        keys = self.keys or (0,)
        return keys[0] if self.best is None else self.best, keys[-1] if self.worst is None else self.worst

    def encode(self) -> bytes:
        """Encode the counts. The caller has to store which curve they belong to."""
        best, worst = (None if end is None else pack_int(end) for end in (self.best, self.worst))
        return encode_checked(_StoredCounts(self.off_lattice, best, worst, self.runs, self.gaps, self.moves))

    @classmethod
    def decode(cls, data: bytes, curve: Curve) -> LiveCounts:
        """Decode the counts that `encode` returned for `curve`, or raise `CurveCorruptError`."""
        stored, counts = decode_checked(data, _DECODER), cls(curve)
        lengths = [len(column) for column in (stored.runs, stored.gaps, stored.moves)]
        if lengths != [len(counts.runs), len(counts.gaps), len(counts.moves)]:
            raise CurveCorruptError("the live counts are another curve's")
        if min(stored.moves) < 0:
            raise CurveCorruptError("the moves are negative")
        counts.runs, counts.gaps, counts.moves = stored.runs, stored.gaps, stored.moves
        counts.off_lattice = stored.off_lattice
        counts.best, counts.worst = (None if end is None else unpack_int(end) for end in (stored.best, stored.worst))
        return counts


class AsOf:
    """The time up to which changes are counted. Many curves share one object, so one assignment updates them all."""

    __slots__ = ("mark", "us")

    def __init__(self, us: int, mark: int = 0) -> None:
        self.us = us  # microseconds since 1970
        self.mark = mark  # the same as a position in the log of changes, for the caller only


class LiveCurve(KnotRanks):
    """A fitted curve, corrected by all changes of the board that were counted since the fit. It is used like a `Curve`.

    Raises:
        KnotsInvalidError: the counts cannot belong to this curve.
    """

    __slots__ = ("_version", "as_of", "fit", "is_as_fitted", "moved", "total")
    is_live: ClassVar[bool] = True

    def __init__(self, fit: Curve, counts: LiveCounts, *, as_of: AsOf, version: int = 0) -> None:
        """Combine a fit with counts. `version` is part of `tag`, so different counts need a different `version`."""
        self.fit, self._version = fit, version
        self.as_of = as_of
        upto = _add_up(fit, counts)
        self.total = upto[-1]
        self.moved = counts.moved
        # Whether every rank is still the same as at the fit: no entry moved into, out of or within a gap, and every
        # knot and gap has as many entries as at the fit.
        self.is_as_fitted = not (self.moved or any(counts.runs) or any(counts.gaps))
        lows = tuple([1 + count for count in upto[:-1:2]])
        highs = tuple([1 + count for count in upto[1::2]])
        snap = 1 if counts.off_lattice else fit.step
        reaches, ends = _widen_errors(fit, counts), counts.find_ends()
        self._set_knots(counts.keys, lows, highs, fit.step, snap, reaches, fit.shapes, ends)

    @property
    def as_of_us(self) -> int:
        """The time up to which changes are counted, in microseconds since 1970."""
        return self.as_of.us

    def freeze(self) -> None:
        """Keep `as_of` at its present value from now on, because the counts are no longer updated."""
        self.as_of = AsOf(self.as_of.us, self.as_of.mark)

    @property
    def tag(self) -> str:
        """A text that identifies the curve. Two curves of the same column with equal tags give equal ranks."""
        return self.fit.tag if self.is_as_fitted else f"{self.fit.tag}-{self._version}"

    @property
    def method(self) -> FitMethod:
        return self.fit.method

    @property
    def step(self) -> int:
        """The lattice step: the smallest distance between two keys that entries may have."""
        return self._snap

    @property
    def knots(self) -> list[Knot]:
        """The knots with their current counts. A knot has 0 ties if all its entries have left since the fit."""
        places = zip(self._keys, self._highs, self._lows[1:], strict=False)
        return [Knot(key, high - 1, low - high) for key, high, low in places]

    @property
    def certificate(self) -> float | None:
        """The worst relative rank error that is currently possible, or None if the fit did not measure it."""
        if self.fit.certificate is None or not self.moved:
            return self.fit.certificate
        return self.estimate_drift(1).bound


def _add_up(fit: Curve, counts: LiveCounts) -> list[int]:
    """Compute running totals: 0, then the number of entries up to and including gap 0, knot 0, gap 1, knot 1 …."""
    runs = list(map(add, (knot.ties for knot in fit.knots), counts.runs))
    starts = [0, *(knot.better_count + knot.ties for knot in fit.knots)]
    ends = [*(knot.better_count for knot in fit.knots), fit.total]
    gaps = [end - start + delta for start, end, delta in zip(starts, ends, counts.gaps, strict=True)]
    if min(runs, default=0) < 0 or min(gaps) < 0:
        raise KnotsInvalidError("more entries left a knot or gap than were in it")
    return list(accumulate(chain.from_iterable(zip(gaps, [*runs, 0], strict=True)), initial=0))


def _widen_errors(fit: Curve, counts: LiveCounts) -> list[int] | None:
    if fit.errors is None:
        return None
    errors = (0, *fit.errors, 0) if fit.knots else (0,)
    return [error + moves + 1 if moves else error for error, moves in zip(errors, counts.moves, strict=True)]


RankCurve = Curve | LiveCurve
