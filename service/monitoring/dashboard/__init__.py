"""The page at `/`: boards, ranks and the health of a node, for people who operate or try the service.

The rule: the page is a client like any other. It gets everything over the public contract: `/v1`, the event streams and
`/jolokia`. It has the role of the key that its reader enters. This room only serves its files, which are in `page/`.

The room imports `service.contract` and nothing else of the service. Begin with `views`.
"""
