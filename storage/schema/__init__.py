"""Declares the tables that every store has, with the table names that all other packages use.

`creation.create_schema` creates all of them when a new store is opened, and returns the store's salt. The tables are
declared in `tables`, `lease_tables` and `ingest_tables`. The tables for board rows are not among them, because
`leaves.row_tables` creates those along with the boards. `sequences` hands out unique numbers.

The table `meta` records a store's schema version. The service refuses to open a store with a different version and
leaves it untouched, because it could damage what it does not understand. There are no migrations until the first
release.

Of `storage`, this package imports only `errors` and `store`. Begin with `creation.create_schema`.
"""
