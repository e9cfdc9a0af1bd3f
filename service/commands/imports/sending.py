"""Sends the records of an import to the service, in batches and in order, and counts the status of each record."""

import re
from collections import Counter
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from itertools import islice
from typing import NamedTuple

import typer
from rankcurve import AsyncClient
from rankcurve.errors import Problem
from rich.console import Console

from service.contract.problems import ProblemError
from service.contract.values import DECIMAL_PATTERN, OWNER_CHARS_MAX, parse_owner

BATCH_POSTS = 5_000
STATUSES = ("applied", "unchanged", "duplicate", "rejected")
EXACTLY = Context(prec=64, rounding=ROUND_HALF_UP)


class Record(NamedTuple):
    """A line of a CSV file or a member of a Redis set. `post` is its post, or a text that says why it is rejected."""

    name: str
    post: dict[str, object] | str


async def send_records(
    client: AsyncClient, board: str, records: Iterable[Record], what: str, *, family: bool = False
) -> None:
    """Send all records. Print each rejected record and, at the end, the number of records for each status.

    If a record was rejected, exit with code 1. `what` names the records in messages. Raises RankcurveError on failure.
    `family`: `board` is the id of a family.
    """
    send = client.post_to_family if family else client.post
    unsent, counts = iter(records), Counter[str]()
    screen = Console(stderr=True, highlight=False)
    with screen.status("0") as progress:
        while batch := list(islice(unsent, BATCH_POSTS)):
            posts = [record.post for record in batch if not isinstance(record.post, str)]
            results = iter(await send(board, posts, split=True, raise_rejected=False))
            for name, post in batch:
                status, reason = "rejected", post
                if not isinstance(post, str):
                    result = next(results)
                    # A status that this command does not know counts as applied, since it was not rejected.
                    status = result.status if result.status in STATUSES else "applied"
                    reason = (result.error or Problem(code="rejected")).text()
                counts[status] += 1
                if status == "rejected":
                    screen.print(f"{name}: {reason}", markup=False, soft_wrap=True)
            progress.update(f"{counts.total():,} {what}")
    typer.echo(f"{counts.total():,} {what}: {', '.join(f'{counts[status]:,} {status}' for status in STATUSES)}")
    if counts["rejected"]:
        raise typer.Exit(1)


def owner_fault(owner: str) -> str | None:
    """Say why `owner` is no valid owner; return None if it is one. One invalid owner would fail a whole request."""
    try:
        parse_owner(owner)
    except ProblemError:
        return f"an owner is 1 to {OWNER_CHARS_MAX} characters of UTF-8, and none of them is a control character"
    return None


def round_decimal(text: str, scale: int) -> str:
    """Round a decimal to at most `scale` digits after the point, with halves away from zero.

    Return any other text unchanged. The service will reject it.
    """
    if not re.fullmatch(DECIMAL_PATTERN, text):
        return text
    try:
        nearest = Decimal(text).quantize(Decimal(1).scaleb(-scale), context=EXACTLY)
    except InvalidOperation:
        return text  # it has more digits than any column accepts
    return text if nearest == Decimal(text) else f"{nearest if nearest else abs(nearest):f}"
