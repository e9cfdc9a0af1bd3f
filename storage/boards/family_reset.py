"""Empties the boards of a family's current period of one kind, such as those of this week.

All boards of the period are emptied in one transaction, which first locks the row of the family. So no post creates a
board of the period meanwhile. The family's row keeps the time, so a board that is created later refuses earlier posts.
The post ids of a family stay valid, because other boards of the family still have the posts.
"""

from dataclasses import replace

import msgspec

from querybuilder import Lock, col, param, plus, update
from storage.leaves.catalog_rows import CATALOG_ROWS, read_rows
from storage.leaves.totals import store_gates
from storage.log.bundles import ChangeKind
from storage.periods import Period, PeriodKind, calendar_of
from storage.records import Family, Leaf
from storage.schema.sequences import count_fact
from storage.schema.tables import BOARDS, FAMILIES
from storage.store import Program, in_partition

from .board_removal import delete_rows
from .families import find_family, read_resets
from .family_ids import shelf
from .journal import log_event

BOARDS_A_STATEMENT = 1_000


def reset_period(*, family_id: str, kind: PeriodKind, now_us: int) -> Program[tuple[Family, Period, list[Leaf]]]:
    """Empty a family's boards of the period of this kind that contains `now_us`. Return the period and their leaves.

    From now on, they refuse posts whose own time is before `now_us`. The caller checks that the family has such boards.

    Raises:
        UnknownFamilyError: there is no such family.
    """
    family = yield from find_family(family_id, lock=Lock.UPDATE)
    period = calendar_of(family.spec.time_zone).period_at(kind, now_us)
    resets = (yield from read_resets(family)) | {kind.value: (period.id, now_us)}
    yield _STORE_RESETS.bind(key=family.key, resets=msgspec.json.encode(resets).decode())
    shelves = [shelf(period.id, names) for names in family.spec.facets]
    rows = yield from read_rows(_ON_SHELVES.bind(key=family.key, shelves=shelves))
    leaves = [row.leaf for row in rows if row.leaf.closed_us is None]
    emptied: list[Leaf] = []
    for start in range(0, len(leaves), BOARDS_A_STATEMENT):
        some = leaves[start : start + BOARDS_A_STATEMENT]
        yield _BEGIN_EPOCH.bind(keys=[leaf.key for leaf in some], now_us=now_us)
        emptied += [replace(leaf, gate=leaf.gate._replace(epoch=leaf.epoch + 1, reset_us=now_us)) for leaf in some]
        yield from store_gates(emptied[start:])  # keeps out new curves, so call it before `delete_rows`
        yield from in_partition(family.partition, delete_rows(some))
    yield from log_event(emptied, ChangeKind.RESET, now_us)
    yield from in_partition(family.partition, count_fact(now_us))
    return family, period, emptied


_STORE_RESETS = update(FAMILIES).set(resets=param("resets")).where(col("family_key").eq(param("key"))).prepared()
_ON_SHELVES = CATALOG_ROWS.where(col("family_key").eq(param("key")), col("shelf").in_(param("shelves"))).prepared()
_BEGIN_EPOCH = (
    update(BOARDS)
    .set(epoch=plus(col("epoch"), 1), reset_at=param("now_us"))
    .where(col("board_key").in_(param("keys")))
    .prepared()
)
