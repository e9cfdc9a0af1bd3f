"""Finds SQL that Citus refuses, or would run on several nodes. `docs/citus.md` lists these forms."""

import re
from functools import cache

from storage.schema.placement import place_tables
from storage.store import CONTROL

_CHAIN = "an insert after another part of a WITH"
_COUNTED = "an insert that skips conflicts and reports how many rows it was given"
NOT_ON_CITUS = {_CHAIN, _COUNTED}  # forms that the store uses, but never on Citus
_SCHEMA = re.compile(r'"([a-z0-9_]+_(?:control|p[0-9]+))"\.')
_TABLE = re.compile(r'(?:FROM|JOIN|INTO|UPDATE) "(\w+)"')
_find_schema = place_tables(0, lambda partition: "control" if partition == CONTROL else "own")
_REFUSED = {
    "a subquery among the values of an insert": re.compile(r" VALUES \([^;]*\(SELECT "),
    "a cursor": re.compile(r"^(DECLARE|FETCH|CLOSE) "),
    "the clock in an update or in RETURNING": re.compile(r"(UPDATE .* SET .*|RETURNING .*)clock_timestamp"),
    "a merge": re.compile(r"^MERGE "),
    "a WITH inside an expression": re.compile(r"[(,=] ?\(WITH "),
    # Citus sends the rows of the other part to all nodes, so it fails while any node is away.
    _CHAIN: re.compile(r'^WITH .*\), "\w+" AS \(INSERT '),
    _COUNTED: re.compile(r"^INSERT (?!.* RETURNING ).* SELECT .* DO NOTHING$"),
}


@cache
def find_fault(sql: str) -> str | None:
    """Return why a statement is not for Citus, or None.

    In a store with one partition, tables have no schemas. There, the schemas are those that their tables would have.
    """
    schemas = set(_SCHEMA.findall(sql)) or {_find_schema(table) for table in _TABLE.findall(sql)} - {None}
    if len(schemas) > 1:
        return f"tables of several schemas: {sorted(map(str, schemas))}"
    return next((what for what, form in _REFUSED.items() if form.search(sql)), None)
