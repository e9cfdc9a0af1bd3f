"""Numbers that a store gives once each: keys of boards, versions of curves, numbers of refresh requests."""

from querybuilder import col, excluded, insert, param, plus
from storage.store import CONTROL, Program, in_partition

from .tables import SEQUENCES


def take_keys(numbers: int = 1) -> Program[int]:
    """Take keys for boards, families or tables, which are unique in the store, and return the last of them."""
    return (yield from in_partition(CONTROL, take_number("board_key", numbers)))


def take_number(name: str, numbers: int = 1) -> Program[int]:
    """Take that many numbers from a sequence and return the last of them.

    A sequence never gives a number twice, whatever is deleted. Every partition has sequences of its own.
    """
    rows = yield _TAKE.bind(name=name, numbers=numbers)
    return int(rows[0][0])


_TAKE = (
    insert(SEQUENCES)
    .values(name=param("name"), next=param("numbers"))
    .on_conflict("name")
    .do_update(next=plus(col("next", SEQUENCES), excluded("next")))
    .returning(col("next"))
    .prepared()
)
