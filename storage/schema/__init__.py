"""Declares the tables that every store has, and the names of these tables, which all packages use.

`creation.create_schema` creates all of them when a new store is opened, and returns the store's salt. The tables are
declared in `tables`, `lease_tables` and `ingest_tables`. The tables that hold the rows of boards are not here:
`leaves.row_tables` creates them when boards are created. `sequences` gives unique numbers.

The table `meta` says which version of the schema a store has. The service refuses a store of another version and
changes nothing in it, because it could damage what it does not understand. Until the first release there are no
migrations.

Of `storage`, this package imports only `errors` and `store`. Begin with `creation.create_schema`.
"""
