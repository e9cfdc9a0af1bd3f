"""Recomputes entries from the posts in the journal, including those under a person's earlier, merged ids.

    entry_histories ── all posts of an entry, under every id ──> replay ──> the entry

The room imports `boards` and what is below it. It serves `voiding` and `rebuild` in `storage.posting`, and
`owner_merges` here. An entry is recomputed only if the journal has every post that is part of it, because missing posts
would otherwise silently stop counting.
"""
