"""Handlers of owners: their entries, positions and profiles; erasing and hiding owners.

`owners` has the handlers that read; some answer about many owners or many boards in one request. Most other views use
its `find_column` to find a ranked column.
`owner_on_boards` reads one owner's positions on many boards in few statements. `previous_period` adds comparisons with
the previous period. `owner_admin` erases, hides and shows an owner.

Each transaction of `owner_admin` changes an owner on a bounded number of boards. If the work is interrupted, an
operator finishes it by sending the same request again.
"""
