"""Recomputes entries from the posts in the journal, including a person's earlier ids that were merged.

    entry_histories ── all posts of an entry, under every id ──> replay ──> the entry

The room imports `boards` and what is below it. `voiding` and `rebuild` of `storage.posting` use it, and `owner_merges`
here. An entry is recomputed only if the journal has every post that is part of it; otherwise the missing posts would
silently stop to count.
"""
