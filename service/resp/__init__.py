"""Serves Redis clients on a second port, where sorted sets are leaderboards. The page on Redis clients is its contract.

    bytes ──wire──> commands ──session──> batches ──┬─ consecutive posts ──> one transaction
                                                    ├─ consecutive reads ──> shared statements
                                                    └─ everything else, one at a time

`door` listens, and limits how much may arrive. A `session` is one connection: it knows the caller, and keeps the
commands between MULTI and EXEC. `batches` runs commands that arrived together, and `parts` holds the state that all
connections share. `command_table` lists the commands, and `keys` resolves a key to a board and a column.
`sorted_set_posts` turns commands into posts, `sorted_set_reads` and `redis_order` read, and `board_commands` has the
commands that take several steps.

The room uses the same parts of the service as `views` does (the writer, point reads, locators, programs for boards),
and neither imports the other. Nothing else in the service knows this protocol. A command that this store can't carry
out as Redis would is refused, because a client that expects Redis would not notice a different result.
"""
