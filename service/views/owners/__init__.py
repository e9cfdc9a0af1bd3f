"""Handlers of owners: their entries and positions, many owners or many boards at once, profiles, erasing and hiding.

`owners` has the handlers that read; `find_column` there is what most other views use to find a ranked column.
`read_owner_on_boards` reads one owner's positions on many boards in few statements. `previous_period` adds the
positions of the period before. `owner_admin` erases, hides and shows an owner.

The most important rule is that of `owner_admin`: work on all boards goes in transactions of a bounded number of boards.
An operator finishes interrupted work by sending the same request again.
"""
