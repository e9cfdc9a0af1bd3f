"""`rankcurve import`: post what a CSV file or a sorted set of Redis holds, as a stream that can be resumed.

    file ──csv_import──────┐
                           ├─> batches of posts ──sending──> the service ──> results in the order of the source
    Redis ──redis_import───┘            └── not a post ──> the rejects            └──> the position in the resume file

The position in the resume file never passes a line whose outcome is unknown. An import can be stopped, killed and run
again at any time. Each post id of a file is made of its content, the mapping and the line, so every line counts once. A
score of Redis replaces the owner's value, so it may be posted again.

Begin at `importing`, the command. `import_lines` parses and uses no network. `import_files` keeps the position and the
rejects, and warns before the same file is added a second time with another mapping.
"""
