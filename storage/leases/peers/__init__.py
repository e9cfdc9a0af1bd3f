"""Leases across stores: regions whose resources are in stores of their own, each with its own service.

A key should have only one resource, whichever store leases it. No store writes into another store; each store reads the
journals of the others:

    other store's journal ──> `exchange` applies a page ──> `elsewhere`: leases that keys have there
                                                                  └──> a transaction answers a key with that lease

    key asks here for more time, or gives back ──> WANTED, RETURNED in the journal here ──> the other store reads them

For each peer, a store remembers a cursor: the number of the last event that it read from the peer's journal. One
transaction applies a page of events and stores the cursor after this page, so every event is applied once. No store
promises anything on behalf of another store: a key gets the last lease that the other store's journal reported for it.

`jobs.leases.peers` fetches the pages. This room may import `storage.leases` and what that room may import; in turn,
`lease_transaction` uses `elsewhere`. Begin with `exchange`.
"""
