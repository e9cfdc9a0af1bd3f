"""Handlers of owners: entries and positions, many owners or many boards in one request, profiles, erasing and hiding.

`owners` has the handlers that read; `find_column` there is what most other views use to find a ranked column.
`owner_on_boards` reads one owner's positions on many boards in few statements. `previous_period` adds the
positions of the period before. `owner_admin` erases, hides and shows an owner.

The most important rule is that of `owner_admin`: each transaction changes an owner on a bounded number of boards. If
the work is interrupted, an operator finishes it by sending the same request again.
"""
