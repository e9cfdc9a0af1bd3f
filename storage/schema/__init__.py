"""The tables of the store itself: the numbered steps that create them, and the table names that every room uses.

    empty store ── step 1 … step N ──> schema N        an older store runs only the steps that it lacks

`steps` lists the steps, and runs the missing ones when a store is opened. `lease_tables` and `ingest_tables` hold two
large steps.
The tables that hold the rows of boards are not here: `boards.row_tables` creates them when boards are created.

The most important rule: a step that was released is never edited. A change of the schema is a new step at the end, so
that all stores reach a schema by the same steps.

This room imports only `errors` and `store`. Begin with `steps.migrate`.
"""
