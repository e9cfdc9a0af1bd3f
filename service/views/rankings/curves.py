"""Handlers of curves: a curve's document, its refresh, and its audit for operators.

The document has everything that a client needs to rank offline. A client that follows docs/curve.md gets exactly the
ranks that the service reads off the curve. An audit counts the exact ranks of random entries, and compares them with
the ranks from the curve.
"""

from collections.abc import Callable, Sequence
from math import ceil
from time import perf_counter

from msgspec import UNSET, structs

from jobs.curves.refresh import refresh_board
from predictor import AnyCurve, Curve, RankCurve, SummedCurve
from service.context import Context
from service.contract.queries import AuditQuery
from service.contract.responses.boards import (
    AuditAnswer,
    AuditedRank,
    CurveAnswer,
    CurveSegment,
    EndAnswer,
    KnotAnswer,
    OutsideAnswer,
    RefreshAnswer,
    TieColumnAnswer,
    curve_facts,
)
from service.contract.routes import Call, Reply, match_entity_tag
from service.contract.values import format_us, to_wire_number
from service.views.boards.specs import show_tiers, show_ties
from service.views.owners.owners import find_column
from storage.archive.archive_reader import ArchivedEntries
from storage.archive.archive_writer import build_exact_curve
from storage.errors import ArchivedError, NoCurveError
from storage.leaves.totals import read_board_totals
from storage.log.cells import Padding
from storage.records import Board, ColumnSpec, Leaf

SHOWN_MAX = 10  # maximum wrong brackets that the answer to an audit lists


async def get_curve(context: Context, call: Call) -> Reply:
    board, index = await find_column(context, call.path["board"], call.path["column"])
    # If another process has emptied the board, this process's curve still describes the former entries. This read then
    # raises an error, so that the curve is not returned.
    await context.store.at(board.reading_partition).read(lambda: read_board_totals(board))
    curves = await _find_curves(context, board, index)
    if not curves:
        raise NoCurveError(f"{board.spec.columns[index].name!r} of {board.id!r} has no curve yet")
    etag = curve_etag(board, index, curves[0] if len(curves) == 1 else SummedCurve(curves))
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if match_entity_tag(call.request.headers.get("If-None-Match", ""), etag):
        return Reply(None, status=304, headers=headers)
    context.metrics.meter.add("rankcurve_reads", 1, "rankings", "curve")
    return Reply(curve_document(board, index, curves), headers=headers)


async def _find_curves(context: Context, board: Board, index: int) -> Sequence[RankCurve]:
    """Find a curve for each of a board's leaves, or [] if a leaf has none. An archived board's are in its archive."""
    entries = context.boards.open_board(board)
    if isinstance(entries, ArchivedEntries):
        return await context.store.at(board.reading_partition).read(lambda: entries.read_curves(index))
    curves = []
    for leaf in board.leaves:
        served = context.curves.book.find_served(leaf, index)
        found = await _build_final_curve(context, leaf, index) if served is None else served.curve
        if found is None:
            return []
        curves.append(found)
    return curves


async def _build_final_curve(context: Context, leaf: Leaf, index: int) -> Curve | None:
    """Build a curve with a knot for each value, or return None if the leaf is open or exceeds `exact_top` entries."""
    if leaf.closed_us is None:
        return None
    found = await context.store.at(leaf.partition).read(lambda: build_exact_curve(leaf, index))
    return found if found.total <= leaf.spec.predictor.exact_top else None


def curve_etag(board: Board, column_index: int, curve: AnyCurve) -> str:
    """Make the entity tag for a curve's document. The tag changes whenever a rank or a tier may have changed.

    The tag is weak, because a live curve's `as_of` advances even while no rank changes.
    """
    return f'W/"{board.key}-{column_index}-{board.spec.settings_version}-{curve.tag}"'


def curve_document(board: Board, column_index: int, curves: Sequence[RankCurve]) -> CurveAnswer:
    """Build the document of a board's curve. `curves` has one curve for each segment, or the board's only curve."""
    columns = board.spec.columns
    column = columns[column_index]
    segments = [_segment_document(board, column, curve) for curve in curves]
    document = segments[0]
    if len(segments) > 1:
        curve = SummedCurve(curves)
        document = CurveSegment(
            **curve_facts(curve),
            step=1,
            snaps=False,
            knots=[],
            errors=None,
            shapes=None,
            outside=None,
        )
    return CurveAnswer(
        column=column.name,
        best=column.best,
        scale=column.scale,
        ties=show_ties(board.spec),
        tie_columns=[_tie_column(columns[tie.number]) for tie in Padding(board.spec, column).tie_columns] or UNSET,
        tiers=show_tiers(column),
        **structs.asdict(document),
        segments=segments if len(segments) > 1 else UNSET,
    )


def _segment_document(board: Board, column: ColumnSpec, curve: RankCurve) -> CurveSegment:
    padding = Padding(board.spec, column)
    scales = [board.spec.columns[tie.number].scale for tie in padding.tie_columns]

    def place_of(key: int) -> EndAnswer:
        """Translate a key of the curve to its value, and to the values that order equal values."""
        cell = padding.cell_of_key(key)
        reached_at = format_us(padding.reached_us(cell)) if padding.timed else UNSET
        ties = [
            None if value is None else to_wire_number(value, scale)
            for value, scale in zip(padding.ties_of(cell), scales, strict=True)
        ]
        return EndAnswer(to_wire_number(padding.decode_value(cell), column.scale), reached_at, ties or UNSET)

    knots = [
        KnotAnswer(rank=1 + better_count, ties=ties, **structs.asdict(place_of(key)))
        for key, better_count, ties in curve.knots
    ]
    return CurveSegment(
        **curve_facts(curve),
        step=curve.grid,
        snaps=curve.rounds_to_lattice,
        knots=knots,
        errors=None if curve.error_bounds is None else list(curve.error_bounds[1:-1]),
        shapes=None if curve.cubics is None else [list(shape) for shape in curve.cubics],
        outside=_outside(curve, place_of),
    )


def _tie_column(column: ColumnSpec) -> TieColumnAnswer:
    least, most = (to_wire_number(end, column.scale) for end in (column.min_scaled, column.max_scaled))
    return TieColumnAnswer(column.name, column.best, column.scale, least, most)


def _outside(curve: RankCurve, place_of: Callable[[int], EndAnswer]) -> OutsideAnswer | None:
    """Find the limits of the values that are better or worse than all knots, or None if there are no such values."""
    if curve.ends is None:
        return None
    best_key, worst_key = curve.ends
    knots = curve.knots
    better = knots[0].better_count if knots else curve.total
    worse = curve.total - (knots[-1].better_count + knots[-1].ties) if knots else curve.total
    if not better and not worse:
        return None
    reaches = curve.error_bounds
    return OutsideAnswer(
        best=place_of(best_key) if better else None,
        worst=place_of(worst_key) if worse else None,
        errors=None if reaches is None else [reaches[0], reaches[-1]],
    )


async def refresh_curve(context: Context, call: Call) -> RefreshAnswer:
    board, index = await _find_changing_column(context, call)
    curve: AnyCurve = Curve((), total=0, as_of_us=context.now_us(), method="scan", certificate=0.0, errors=())
    seconds = 0.0
    if not board.is_unreached:
        curve, seconds = await refresh_board(context.curves.refreshes, board, index)
    return RefreshAnswer(
        column=board.spec.columns[index].name,
        **curve_facts(curve),
        seconds=seconds,
    )


async def _find_changing_column(context: Context, call: Call) -> tuple[Board, int]:
    board, index = await find_column(context, call.path["board"], call.path["column"])
    if board.gate.archived_us is not None:
        raise ArchivedError(f"{board.id!r} was archived, and its curves are final")
    return board, index


async def audit_curve(context: Context, call: Call) -> AuditAnswer:
    query: AuditQuery = call.query
    board, index = await _find_changing_column(context, call)
    started_s = perf_counter()
    found = await context.curves.auditor.audit_column(board, index, owners=query.owners)
    column, curve = board.spec.columns[index], found.curve
    padding = Padding(board.spec, column)
    exact_top = board.spec.predictor.exact_top  # only `rank=estimate` reads ranks up to this one off the curve
    errors = sorted(each.error for each in found.compared if each.low > exact_top)
    broken = [
        AuditedRank(
            value=to_wire_number(padding.decode_value(each.cell), column.scale),
            true_rank=each.true_rank,
            rank=each.rank,
            low=each.low,
            high=each.high,
        )
        for each in found.broken[:SHOWN_MAX]
    ]
    return AuditAnswer(
        column=column.name,
        outcome=found.outcome,
        **curve_facts(curve),
        bound=curve.estimate_drift(exact_top + 1).bound,
        owners=len(found.compared),
        mean_error=sum(errors) / len(errors) if errors else None,
        p99_error=errors[ceil(0.99 * len(errors)) - 1] if errors else None,
        worst_error=errors[-1] if errors else None,
        brackets_broken=len(found.broken),
        certificates_broken=len(found.beyond_certificate),
        broken=broken,
        seconds=perf_counter() - started_s,
    )
