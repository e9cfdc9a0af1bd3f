"""`rankcurve import`: post the lines of a CSV file, or the members of a sorted set of Redis, to a leaderboard.

    file ──csv_import────┐
                         ├─> records ──sending──> the service, one batch after the other
    Redis ──redis_import─┘                 └────> the terminal: rejected records, and a count for each status

An import keeps no state. If it was stopped, the same command sends all records again, which does no harm. For a CSV
file, a post id is made of the file's content, the mapping of columns and the line number, so every line counts once. A
score of Redis replaces the owner's value or, with --merge, only improves it. So posting a score twice changes nothing.
Begin with `importing`, which has the command.
"""
