"""The two implementations of `store.Store`: SQLite, to which one process writes, and PostgreSQL, shared by any number.

    program ── store.read / store.write ──> a connection of the right kind ── query, rows, query, rows … ──> the result
                     ^                                                   │
                     └──── PostgreSQL only: pause, run it again ── lost race or connection

Each engine keeps three kinds of connections: for writing, for short reads, and for heavy reads such as scans.

- `sqlite` keeps the store in one file. `sqlite_file` locks and checks the file before SQLite opens it, `brief_reads`
  runs reads in the thread of the event loop, and `sqlite_backup` copies a store that is in use.
- `postgres` keeps the store in one database. `database_nodes` knows which server has which partition, and `breaker`
  notices when a server stops answering. `connection_pool` lends connections and retries failed attempts, and
  `postgres_connection` opens sessions.

Every wait for a database server has a time limit, so that a server that hangs can't take the service with it. A COMMIT
whose answer was lost is never repeated, because the server may already have committed the transaction.

No other package imports a database driver. Begin with `sqlite.SqliteStore`, which is the simpler engine.
"""
