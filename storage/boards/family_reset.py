"""Empties the boards of a family's current period of one kind, such as those of this week.

All boards of the period are emptied in one transaction, which first locks the row of the family. So no post creates a
board of the period meanwhile. The family's row keeps the time, so a board that is created later refuses earlier posts.
The post ids of a family stay valid, because other boards of the family still have the posts.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from querybuilder import Lock, col, delete, hold_table, param, plus, truncate, update
from storage.leaves.catalog_rows import CATALOG_ROWS, read_rows
from storage.leaves.row_tables import ROWS_KEY, layout_of
from storage.leaves.totals import store_states
from storage.log.change_log import NewChange, change_log
from storage.log.log_record import ChangeKind, record_of_event
from storage.periods import Period, PeriodKind, calendar_of
from storage.records import Family, Leaf
from storage.schema.sequences import count_fact
from storage.schema.tables import BOARDS, CURVES, FAMILIES, HIDDEN_ENTRIES, LIVE_COUNTS, TOTALS
from storage.store import Program, in_partition

from .board_removal import delete_of_leaves
from .families import find_family, read_resets
from .family_ids import shelf

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
    for start in range(0, len(leaves), BOARDS_A_STATEMENT):
        some = leaves[start : start + BOARDS_A_STATEMENT]
        yield _BEGIN_EPOCH.bind(keys=[leaf.key for leaf in some], now_us=now_us)
        yield from in_partition(family.partition, _remove_rows(family, some))
    gates = [leaf.gate._replace(epoch=leaf.epoch + 1, reset_us=now_us) for leaf in leaves]
    emptied = [replace(leaf, gate=gate) for leaf, gate in zip(leaves, gates, strict=True)]
    yield from in_partition(family.partition, _log_reset(emptied, now_us))
    return family, period, emptied


def _remove_rows(family: Family, leaves: Sequence[Leaf]) -> Program[None]:
    keys = [leaf.key for leaf in leaves]
    if family.shares_table:
        layout = layout_of(leaves[0])
        yield hold_table(layout.table).bind()  # a post that has locked no row yet could add one
        yield delete(layout.table).where(col(ROWS_KEY).in_(param("keys"))).bind(keys=keys)
    for leaf in () if family.shares_table else leaves:
        yield truncate(layout_of(leaf).table).bind()
    yield from delete_of_leaves((TOTALS, CURVES, LIVE_COUNTS, HIDDEN_ENTRIES), keys)


def _log_reset(leaves: Sequence[Leaf], now_us: int) -> Program[None]:
    for start in range(0, len(leaves), BOARDS_A_STATEMENT):
        some = leaves[start : start + BOARDS_A_STATEMENT]
        yield from store_states(some)
        events = [NewChange(leaf.key, "", "", "", record_of_event(ChangeKind.RESET)) for leaf in some]
        yield from change_log.append_changes(events, now_us=now_us)
    yield from count_fact(now_us)


_STORE_RESETS = update(FAMILIES).set(resets=param("resets")).where(col("family_key").eq(param("key"))).prepared()
_ON_SHELVES = CATALOG_ROWS.where(col("family_key").eq(param("key")), col("shelf").in_(param("shelves"))).prepared()
_BEGIN_EPOCH = (
    update(BOARDS)
    .set(epoch=plus(col("epoch"), 1), reset_at=param("now_us"))
    .where(col("board_key").in_(param("keys")))
    .prepared()
)
