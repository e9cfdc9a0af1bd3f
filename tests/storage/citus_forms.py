"""Finds SQL that Citus refuses, or would run on several nodes. `docs/citus.md` lists these forms."""

import re

_SCHEMA = re.compile(r'"([a-z0-9_]+_(?:control|p[0-9]+))"\.')
_REFUSED = {
    "a subquery among the values of an insert": re.compile(r" VALUES \([^;]*\(SELECT "),
    "a cursor": re.compile(r"^(DECLARE|FETCH|CLOSE) "),
    "the clock in an update or in RETURNING": re.compile(r"(UPDATE .* SET .*|RETURNING .*)clock_timestamp"),
    "a merge": re.compile(r"^MERGE "),
    "a WITH inside an expression": re.compile(r"[(,=] ?\(WITH "),
    # Citus sends the rows of the other part to all nodes, so it fails while any node is away.
    "an insert after another part of a WITH": re.compile(r'^WITH .*\), "\w+" AS \(INSERT '),
    "an insert that skips conflicts and reports how many rows it was given": re.compile(
        r"^INSERT (?!.* RETURNING ).* SELECT .* DO NOTHING$"
    ),
}


def find_fault(sql: str) -> str | None:
    """Return why a statement is not for Citus, or None."""
    schemas = set(_SCHEMA.findall(sql))
    if len(schemas) > 1:
        return f"tables of several schemas: {sorted(schemas)}"
    return next((what for what, form in _REFUSED.items() if form.search(sql)), None)
