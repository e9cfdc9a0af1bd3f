"""`rankcurve import`: post what a CSV file or a sorted set of Redis holds, as a stream of batches.

    file ──csv_import──────┐
                           ├─> batches of records ──sending──> the service ──> counts in the order of the source
    Redis ──redis_import───┘            └── not a post ──> the rejects <──── rejected

An import keeps no state: after it was stopped, the same command sends all records again, which does no harm. Each post
id of a file is made of its content, the mapping and the line, so every line counts once. A score of Redis replaces the
owner's value, so it may be posted again.

Begin at `importing`, the command. `import_records` has what both sources share: records, their checks and the rejects.
"""
