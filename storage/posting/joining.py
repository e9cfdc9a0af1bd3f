"""Lets an owner join a board with entry rules, as the list in `rules` allows.

    lock the gate ──> check the copy of the board ──> lock the count of owners ──> judge ──> write ──> lock the log

The lock on the gate keeps the rules unchanged until the transaction ends. As for posts (see `group_facts`), the counter
of the change log shows whether the owner was merged into another one after the transaction began.
"""

from dataclasses import replace

from storage.errors import BoardChangedError, LostRaceError, NoEntryRulesError
from storage.leaves import hidden_owners
from storage.leaves.entrants import Entrant, hold_entrants
from storage.leaves.entries import Entries
from storage.leaves.gates import hold_gates, read_gates
from storage.leaves.totals import read_totals
from storage.log.change_log import change_log
from storage.records import Leaf
from storage.store import Program

from .rules import Attempt, find_refusal


def join_leaf(leaf: Leaf, owner: str, *, now_us: int, opens_us: int | None = None) -> Program[tuple[Entrant, bool]]:
    """Let an owner join a leaf, unless it already takes part. Return its row, and whether the row is new.

    Run this in the leaf's partition.

    `opens_us`: the start of the period, for a board of a family.

    Raises:
        PostError: the error of the first rule in `RULES` that refuses.
        UnknownBoardError, BoardChangedError: the caller's copy of the board is outdated.
        LostRaceError: at the same time an owner was hidden, shown or merged, or a board was changed.
    """
    gates = yield from read_gates(leaf.partition, [leaf.key], held=True)
    yield from read_totals([leaf])
    if leaf.key not in gates or gates[leaf.key][0] != leaf.place:
        raise BoardChangedError
    if leaf.spec.entry is None:
        raise NoEntryRulesError
    gate = gates[leaf.key][1]
    if leaf.family_key is not None:
        closed = (yield from hold_gates([replace(leaf, gate=gate)], now_us=now_us, check_all=False)).get(leaf.key)
        gate = (closed or replace(leaf, gate=gate)).gate._replace(opens_us=opens_us)
    version, states = yield from hidden_owners.read_states([owner])
    [held] = (yield from hold_entrants([(leaf, [owner])])).values()
    row = held.rows.get(owner)
    has_entry = row is None and (yield from _has_entry(leaf, owner))
    attempt = Attempt(None, now_us, leaf.id, leaf.family_key is not None, joins=True, owners=held.owners)
    attempt = attempt._replace(is_merged=states.get(owner) in hidden_owners.REFUSED)
    if row is None and not has_entry:
        attempt = attempt._replace(gate=gate, entry=leaf.spec.entry)
    if (error := find_refusal(attempt)) is not None:
        raise error
    if row is not None or has_entry:
        return row or Entrant(0, None), False
    yield from held.store_joined(owner, now_us=now_us)
    if (yield from change_log.append_drafts([], now_us=now_us)).facts != version:
        raise LostRaceError
    return Entrant(0, now_us), True


def _has_entry(leaf: Leaf, owner: str) -> Program[bool]:
    if (yield from Entries(leaf).find_entries([owner])):
        return True
    return bool((yield from hidden_owners.find_hidden_entries([leaf.key], [owner])))
