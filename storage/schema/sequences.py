"""Hands out numbers that a store never uses twice: board keys, curve versions, request numbers and event numbers."""

from querybuilder import INTEGER, col, excluded, insert, larger_of, param, plus, update
from storage.store import CONTROL, Program, in_partition

from .tables import LOG_COUNTER, SEQUENCES


def take_keys(numbers: int = 1) -> Program[int]:
    return (yield from in_partition(CONTROL, take_number("board_key", numbers)))


def take_number(name: str, numbers: int = 1) -> Program[int]:
    """Take the next `numbers` numbers from a sequence and return the last of them.

    A sequence never repeats a number, even after the rows that use it are deleted. Every partition has its own
    sequences.
    """
    rows = yield _TAKE.bind(name=name, numbers=numbers)
    return int(rows[0][0])


def count_fact(now_us: int = 0) -> Program[None]:
    """Increase this partition's counter `facts`, so that processes drop what they have cached, see `group_facts`.

    Call this last in the transaction, because from then on every post to the partition waits until the transaction
    ends.
    """
    yield _COUNT_FACT.bind(now_us=now_us)


_TAKE = (
    insert(SEQUENCES)
    .values(name=param("name"), next=param("numbers"))
    .on_conflict("name")
    .do_update(next=plus(col("next", SEQUENCES), excluded("next")))
    .returning(col("next"))
    .prepared()
)
_counter = update(LOG_COUNTER).where(col("counter_key").eq(0))
# After a restore from a backup, adding 1 could repeat a number that a process remembers, so use the time if greater.
_COUNT_FACT = _counter.set(facts=larger_of(plus(col("facts"), 1), param("now_us", INTEGER))).prepared()
