"""Sends the records of an import in batches, in their order, and counts what became of them."""

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
    """A line or a member: its name in messages, and its post or the reason why it cannot be one."""

    name: str
    post: dict[str, object] | str


async def send_records(client: AsyncClient, board: str, records: Iterable[Record], what: str) -> None:
    """Send all records. Print each rejected one, and at the end how many there are of each status.

    If records were rejected, end the command with exit code 1. Raises RankcurveError if the service fails.
    """
    unsent, counts = iter(records), Counter[str]()
    screen = Console(stderr=True, highlight=False)
    with screen.status("0") as progress:
        while batch := list(islice(unsent, BATCH_POSTS)):
            posts = [record.post for record in batch if not isinstance(record.post, str)]
            results = iter(await client.post(board, posts, split=True, raise_rejected=False))
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
    """Return why `owner` cannot be an owner, or None. The service would refuse all posts of a request for it."""
    try:
        parse_owner(owner)
    except ProblemError:
        return f"an owner is 1 to {OWNER_CHARS_MAX} characters of UTF-8, and none of them is a control character"
    return None


def round_decimal(text: str, scale: int) -> str:
    """Return a decimal with at most `scale` digits after the point, halves away from zero.

    Other text is returned as it is, and the service will reject it.
    """
    if not re.fullmatch(DECIMAL_PATTERN, text):
        return text
    try:
        nearest = Decimal(text).quantize(Decimal(1).scaleb(-scale), context=EXACTLY)
    except InvalidOperation:
        return text  # far more digits than any column takes
    return text if nearest == Decimal(text) else f"{nearest if nearest else abs(nearest):f}"
