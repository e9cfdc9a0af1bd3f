"""The audit of one column, for operators: count the exact ranks of random entries, and compare the curve with them."""

from __future__ import annotations

from math import ceil
from time import perf_counter

from service.context import Context
from service.contract.queries import AuditQuery
from service.contract.responses.boards import AuditAnswer, AuditedRank
from service.contract.routes import Call
from service.contract.values import format_us, to_wire_number
from service.views.owners.owners import find_column
from storage.curves.auditing import Audit
from storage.log.cells import Padding
from storage.records import Board

SHOWN_MAX = 10  # the most wrong brackets that one answer lists


async def audit_column(context: Context, call: Call) -> AuditAnswer:
    """Handle `POST …/rankings/{column}/audit`."""
    query: AuditQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    started_s = perf_counter()
    found = await context.curves.auditor.audit_column(board, index, owners=query.owners)
    return _answer(board, index, found, perf_counter() - started_s)


def _answer(board: Board, index: int, found: Audit, seconds: float) -> AuditAnswer:
    column, curve = board.spec.columns[index], found.curve
    padding = Padding.for_column(board.spec, column)
    errors = sorted(each.error for each in found.compared)
    return AuditAnswer(
        column=column.name,
        outcome=found.outcome,
        method=curve.method,
        total=curve.total,
        as_of=format_us(curve.as_of_us),
        certificate=curve.certificate,
        owners=len(errors),
        mean_error=sum(errors) / len(errors) if errors else None,
        p99_error=errors[ceil(0.99 * len(errors)) - 1] if errors else None,
        worst_error=errors[-1] if errors else None,
        brackets_broken=len(found.broken),
        certificates_broken=len(found.beyond_certificate),
        broken=[
            AuditedRank(
                value=to_wire_number(padding.decode_value(each.cell), column.scale),
                true_rank=each.true_rank,
                rank=each.rank,
                low=each.low,
                high=each.high,
            )
            for each in found.broken[:SHOWN_MAX]
        ],
        seconds=seconds,
    )
