"""The page at `/`: boards, ranks and the health of a node, for people who operate or try the service.

The rule: it is a client like any other. What it shows comes over the public contract (`/v1`, the event streams and
`/jolokia`) with the role of the key that its reader gives; here its files are served and nothing else.
"""
