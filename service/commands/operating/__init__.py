"""The commands for whoever runs the service: serve, jobs, config, keys, queue, backup, restore and rebuild.

Besides `service.commands.settings`, this is the only room of commands that may read settings or open a store. On SQLite
a running service holds the store's lock. So stop the service before `keys` with `--store`, `restore` and `rebuild`, but
not before `backup`, which only reads. Drivers and the server are imported inside the functions, because these imports
are slow.

Begin with `serving`. `service.commands.settings` says how options become settings.
"""
