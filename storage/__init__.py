"""Durable boards, posts, curves and leases behind one interface (`store.Store`), on SQLite or PostgreSQL.

Only the room `engines` talks to a database. All logic is written as programs: generators that yield queries and are
sent their rows. A store runs a program against one snapshot (`read`) or in one transaction (`write`).

    _COUNT = select(count()).from_(PROFILES).prepared()
    _DELETE = delete(PROFILES).where(col("owner").eq(param("owner"))).prepared()

    def count_profiles() -> Program[int]:
        rows = yield _COUNT.bind()  # a query: the store runs it and sends its rows
        return int(rows[0][0])

    def delete_profile(owner: str) -> Program[int]:
        yield _DELETE.bind(owner=owner)
        return (yield from count_profiles())  # a program: its queries pass through this one

    profiles_left = await store.write(lambda: delete_profile("42"))

A query names no dialect. The store turns it into SQL of its own dialect when the program yields it, and compiles a
prepared query only once. So the errors of a query, such as a missing parameter, are raised by `read` and `write`.

Use `yield` for a query and `yield from` for a program. If a program is called with neither, it never runs, and no error
is raised. A test finds such calls in the source. `read_single` and `write_single` run a program of one query without a
transaction, which is cheaper.

A module offers other modules only programs and plain functions, no queries. If several modules contribute to one
statement, they pass its parts (`Select`, `Insert`, `Condition`) to one module, which joins and prepares them.

A caller passes a function, not a generator, because a store may run a program several times and a generator runs only
once. So a program keeps its state in local variables and has no effect besides its queries. A race can be lost in two
ways:

- The database reports a serialization failure, a deadlock or a duplicate key. The PostgreSQL store rolls back, pauses
  for a random time and runs the program again, at most `store_attempts_max` times in all. It does the same after a lost
  connection. It never repeats a COMMIT whose answer was lost: the caller gets `OutcomeUnknownError`. On SQLite, writes
  run one at a time, so the database never reports a lost race.
- A conditional write of the program changes fewer rows than it should, and the program raises `LostRaceError`. The
  store rolls back, and the exception reaches the caller, which reads again and tries again (see `posting.writer`).

These are the rooms and modules, with the lowest first. A room imports only rooms above it in this list. Rooms in
brackets never import each other:

    [ errors     the errors that storage raises
      periods ]  calendar periods in a time zone
    records      the values that rooms pass to each other
    store        the interface that every store implements
    coalesce     answers many concurrent questions with few statements
    schema       the tables of a store and the steps that create them
    [ engines    the stores on SQLite and PostgreSQL, and how a store is opened
      boards     the catalog: boards, families, seasons, API keys, and the tables that hold rows
      leases ]   resources that clients lease, and leases on the store's own work
    log          the change log and the journal, which record what every post changed
    entries      the rows of a board: reads, conditional writes, rankings, exact ranks
    [ archive    closed boards as compressed blocks instead of rows
      curves ]   stored curves, their live counts, and the scans that they are fitted from
    reads        the point reads that nearly every request makes, many in one statement
    posting      from posts to transactions: grouping, admission, post ids
    queue        the ingest queue: posts that are accepted now and applied later

Begin with `store`. Then read `boards.api_keys`, a short module of programs.
"""
