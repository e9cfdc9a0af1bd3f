"""Numbers that a store gives once each: keys of boards, versions of curves and facts, numbers of refresh requests."""

from querybuilder import INTEGER, col, excluded, insert, larger_of, param, plus, update
from storage.store import CONTROL, Program, in_partition

from .tables import LOG_COUNTER, SEQUENCES


def take_keys(numbers: int = 1) -> Program[int]:
    """Take keys for boards, families or tables, which are unique in the store, and return the last of them."""
    return (yield from in_partition(CONTROL, take_number("board_key", numbers)))


def take_number(name: str, numbers: int = 1) -> Program[int]:
    """Take that many numbers from a sequence and return the last of them.

    A sequence never gives a number twice, whatever is deleted. Every partition has sequences of its own.
    """
    rows = yield _TAKE.bind(name=name, numbers=numbers)
    return int(rows[0][0])


def count_fact(now_us: int = 0) -> Program[None]:
    """Let processes forget what they know of this partition, because it changes. See `posting.known_facts`.

    Call this last in the transaction: every post to the partition waits until it ends.
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
# A count alone could repeat in a store that was restored from a backup, with other facts. A time does not.
_COUNT_FACT = _counter.set(facts=larger_of(plus(col("facts"), 1), param("now_us", INTEGER))).prepared()
