"""Leases across several stores, each with its own service and with the resources of its own regions.

A key should have only one resource, whichever store leases it. No store writes into another store; each store reads the
journals of the others:

    other store's journal ──> `exchange` applies a page ──> `elsewhere`: leases of keys in that store
                                                                  └──> a transaction answers a key with its lease

    key asks here for more time, or gives back ──> WANTED, RETURNED in the journal here ──> the other store reads them

For each peer (another store), a store remembers a cursor: the number of the last event that it read from the peer's
journal. One transaction applies a page of events and stores the cursor after the page, so every event is applied once.
A store grants no leases for a peer: it answers a key with the last lease that the peer's journal reported for the key.

`jobs.leases.peers` fetches the pages. This package may import `storage.leases` and all that `storage.leases`
may import. In turn, `lease_transaction` imports `elsewhere`. Begin with `exchange`.
"""
