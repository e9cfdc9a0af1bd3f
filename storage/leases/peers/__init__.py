"""Leases across stores: regions whose resources live in stores of their own, each with its own service.

A key should have one resource, whichever store leased it. The stores never write into each other; each reads the
journals of the others:

    other store's journal ──> `exchange` takes in a page ──> `elsewhere`: leases that keys have there
                                                                  └──> `roaming` answers a key with that lease

    key asks here for more, or gives back ──> WANTED, RETURNED in the journal here ──> the other store reads them

`elsewhere` holds the rows, `exchange` applies a page of events, `roaming` serves the requests of one transaction.
`jobs.leases.peers` fetches the pages.

The rule: a page of events and the cursor past it are stored in one transaction, so every event counts once. Nothing is
promised on behalf of another store: a key is told what that store's journal last said.

This room may import `storage.leases` and what that room may import; in turn, `lease_transaction` uses `elsewhere` and
`roaming`. Begin with `exchange`.
"""
