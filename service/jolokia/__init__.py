"""The Jolokia protocol 7.2 over the tree of managed objects: read, list, search, exec, version.

    request (GET path, POST body, bulk) ──> requests ──> answering (tree) ──> values (paths, limits) ──> envelope

The rule: a request that can't be met is an envelope with a status of its own, under HTTP 200; `write`, stack traces and
CORS are not there.

Source: https://jolokia.org/reference/html/manual/jolokia_protocol.html
"""
