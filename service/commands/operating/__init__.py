"""The commands for operators of the service.

These are serve, jobs, config, store, partition, keys, queue, backup, restore and rebuild.

On SQLite a running service holds the store's lock. So stop the service before `keys` with `--store`, `partition list`,
`restore` and `rebuild`, but not before `backup`, which only reads. Drivers and the server are imported inside the
functions, because these imports are slow. Begin with `serving`.
"""
