"""`rankcurve import`: post what a CSV file or a sorted set of Redis holds.

    file ──csv_import────┐
                         ├─> records ──sending──> the service, one batch after the other
    Redis ──redis_import─┘                 └────> the rejected records, and how many there are of each status

An import keeps no state: after it was stopped, the same command sends all records again, which does no harm. Each post
id of a file is made of its content, the mapping and the line, so every line counts once. A score of Redis replaces the
owner's value, so it may be posted again.

Begin at `importing`, the command.
"""
