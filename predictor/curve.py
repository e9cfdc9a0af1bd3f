"""Defines a fitted curve, off which ranks are read: knots counted in one snapshot, and the errors between them.

The constructor checks every number, even when a curve is decoded, so `locate` need not check them again.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from math import isfinite
from operator import add, le, lt
from typing import ClassVar, Literal, NamedTuple

from .errors import KnotsInvalidError
from .locate import SHAPE_UNIT, KnotRanks

GAP_KNOTS_MAX = 10_000  # maximum number of knots that are added to a curve to keep its gaps short

FitMethod = Literal["skip", "scan"]


def limit_gap_rows(total: int, gap_rows_max: int) -> int:
    """Choose the limit on a gap's entries: `gap_rows_max`, or more if that needs over GAP_KNOTS_MAX knots."""
    return max(gap_rows_max, -(-total // GAP_KNOTS_MAX))


class Knot(NamedTuple):
    """A value that at least one entry has, with exact counts from the snapshot. A named tuple is cheap to create."""

    key: int  # smaller is better
    better_count: int  # number of entries with a strictly smaller key; the rank of `key` is one more
    ties: int  # number of entries with exactly this key, at least 1


@dataclass(frozen=True, slots=True)
class Curve(KnotRanks):
    """The ranks of one ranked column at one snapshot. An empty column has no knots.

    The knots are in ascending order of their keys, from the column's best value to its worst. The rank of a key that is
    better or worse than all knots is therefore exact, too.

    Raises:
        KnotsInvalidError: the numbers contradict each other.
    """

    knots: Sequence[Knot]  # the constructor turns it into a tuple
    _: KW_ONLY
    total: int  # number of entries at the snapshot
    as_of_us: int  # the snapshot's time, microseconds since 1970
    method: FitMethod = "skip"
    # Every key of the snapshot is knots[0].key plus a multiple of this lattice step; 1 unless a scan saw every key.
    step: int = 1
    certificate: float | None = None  # worst relative rank error measured at the fit; None: not measured
    # The next two fields have one item for each pair of neighbouring knots.
    errors: Sequence[int] | None = None  # largest |rank - true rank| over every key at the fit; None: not measured
    shapes: Sequence[tuple[int, int]] | None = None  # two Bézier values of a cubic, 0 to SHAPE_UNIT; None: lines

    is_live: ClassVar[bool] = False  # whether the curve counts changes of the board since the fit
    moved: ClassVar[int] = 0  # number of moves into, out of and within gaps; only a live curve counts them

    @property
    def tag(self) -> str:
        """A text that identifies the curve. Two curves of the same column with equal tags give equal ranks."""
        return str(self.as_of_us)

    def __post_init__(self) -> None:
        if self.step < 1:
            raise KnotsInvalidError("the lattice step should be at least 1")
        if self.certificate is not None and not (isfinite(self.certificate) and self.certificate >= 0):
            raise KnotsInvalidError("the certificate should be a finite ratio of at least 0")
        knots = tuple(self.knots)
        keys, better_counts, ties = zip(*knots, strict=True) if knots else ((), (), ())
        counted = tuple(map(add, better_counts, ties))
        _check(self, keys, better_counts, counted)
        object.__setattr__(self, "knots", knots)
        gap_count = max(0, len(knots) - 1)
        if self.errors is not None:
            object.__setattr__(self, "errors", tuple(self.errors))
            if len(self.errors) != gap_count or min(self.errors, default=0) < 0:
                raise KnotsInvalidError("a gap between two knots should have one error of at least 0")
        if self.shapes is not None:
            object.__setattr__(self, "shapes", tuple(self.shapes))
            if len(self.shapes) != gap_count or not all(0 <= s1 <= s2 <= SHAPE_UNIT for s1, s2 in self.shapes):
                raise KnotsInvalidError(
                    "a gap between two knots should have two control values, which ascend within its rise"
                )
        lows = (1, *[1 + count for count in counted])
        highs = (*[1 + count for count in better_counts], self.total + 1)
        reaches = None if self.errors is None else (0, *self.errors, 0)
        self._set_knots(keys, lows, highs, self.step, self.step, reaches, self.shapes, None)


def _check(curve: Curve, keys: Sequence[int], better_counts: Sequence[int], counted: Sequence[int]) -> None:
    """Raise `KnotsInvalidError` if the numbers of a curve's knots contradict each other or the curve's total.

    `counted` holds, for each knot, the number of entries with its key or a better one. Every decoding runs this
    check, so it checks each list as a whole, which is faster than checking knot by knot.
    """
    if (better_counts[0] if keys else 0) != 0 or (counted[-1] if keys else 0) != curve.total:
        raise KnotsInvalidError(
            "the first knot should be the best value and the last knot the worst, unless the column is empty"
        )
    if not all(map(lt, better_counts, counted)):
        raise KnotsInvalidError("at least one entry should hold the value of each knot")
    if not all(map(lt, keys, keys[1:])) or not all(map(le, counted, better_counts[1:])):
        raise KnotsInvalidError("a knot contradicts the one before it")
    step = curve.step
    if step > 1 and any((key - keys[0]) % step for key in keys):
        raise KnotsInvalidError("a knot is off the lattice")
    for key, next_key, upto, better_count in zip(keys, keys[1:], counted, better_counts[1:], strict=False):
        if next_key - key <= step and better_count > upto:
            raise KnotsInvalidError(f"no key is left for the entries before rank {better_count + 1}")
