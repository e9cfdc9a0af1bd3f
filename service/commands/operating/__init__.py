"""The commands for operators: serve, jobs, config, store, partition, keys, backup, restore and rebuild.

On SQLite a running service locks the store. So stop the service before `keys create` with `--store`, `partition list`,
`restore` and `rebuild`. `backup` only reads the store, so the service may keep running. Drivers and the server are
imported inside the functions, because these imports are slow. Begin with `serving`.
"""
