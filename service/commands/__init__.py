"""The commands of `rankcurve`, one group a file: they live apart so that each reads alone.

The rule: a command talks to a service over HTTP through `service.client`, so that one process keeps owning a SQLite
file; `serve`, `config` and `keys` are the only ones that read settings.
"""
