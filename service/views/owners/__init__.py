"""Handlers of owners: their entries, positions and profiles; erasing and hiding owners.

`owners` has the handlers that read. Most other views use its `find_column` to find a ranked column. `owner_on_boards`
reads one owner's positions on many boards in few statements. `previous_period` compares positions with the previous
period. `owner_admin` erases, hides and shows an owner.
"""
