"""Durable boards, posts, curves and leases behind one interface (`store.Store`), on SQLite or PostgreSQL.

Only the sub-package `engines` talks to a database. All logic is written as programs: generators that yield queries and
receive the rows. A store runs a program against one snapshot (`read`) or in one transaction (`write`).

    _COUNT = select(count()).from_(PROFILES).prepared()
    _DELETE = delete(PROFILES).where(col("owner").eq(param("owner"))).prepared()

    def count_profiles() -> Program[int]:
        rows = yield _COUNT.bind()  # a query: the store runs it and sends its rows
        return int(rows[0][0])

    def delete_profile(owner: str) -> Program[int]:
        yield _DELETE.bind(owner=owner)
        return (yield from count_profiles())  # a program, which runs as a part of this program

    profiles_left = await store.write(lambda: delete_profile("42"))

A query names no dialect. The store turns it into SQL of its own dialect when the program yields it, and compiles a
prepared query only once. So the errors of a query, such as a missing parameter, are raised by `read` and `write`.

Use `yield` for a query and `yield from` for a program. A program that is called without either never runs, and raises
no error, so a test searches the source for such calls. `read_single` runs a program of one query without a transaction,
which is cheaper.

Modules offer each other only programs and plain functions, no queries. If several modules contribute to one statement,
they pass its parts (`Select`, `Insert`, `Condition`) to one module, which joins and prepares them.

A caller passes a function instead of a generator, because a store may run a program several times, whereas a generator
runs only once. So a program keeps its state in local variables and has no effect besides its queries. If two programs
change the same rows, one of them may lose the race, in one of two ways:

- The database reports a serialization failure, a deadlock or a duplicate key. The PostgreSQL store rolls back, pauses
  for a random time and runs the program again, at most `store_attempts_max` times in all. It does the same after a lost
  connection. But it never repeats a COMMIT whose answer was lost: the caller gets `OutcomeUnknownError`. On SQLite,
  writes run one at a time, so the database never reports a lost race.
- A conditional write of the program changes fewer rows than it should, and the program raises `LostRaceError`. The
  store rolls back, and the exception reaches the caller, which reads again and tries again (see `posting.writer`).

`docs/rooms.md` lists the sub-packages, called rooms. Begin with `store`, then the short `boards.api_keys`.
"""
