"""A door for Redis clients: a second listener, whose sorted sets are boards. Its contract is the page on Redis clients.

    bytes ──wire──> commands ──session──> batches ──┬─ posts that follow each other ──> one transaction
                                                    ├─ reads that follow each other ──> shared statements
                                                    └─ everything else, alone

`door` listens and bounds what arrives. `session` is one connection: who calls, and transactions. `batches` runs what
arrived together, and `parts` is what all connections share. `command_table` names the commands. `keys` leads from a key
to a board and a column. `sorted_set_posts` makes posts, `sorted_set_reads` and `redis_order` read, and `board_commands`
does what takes several steps.

The room uses what `views` uses (the writer, point reads, locators, programs of boards), and stands beside it. Nothing
else knows this protocol. The most important rule: a command that this store can't do as Redis does it is refused.
"""
