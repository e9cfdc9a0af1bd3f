"""The page at `/`: boards, ranks and the health of a node, for people who operate or try the service.

The page is a client like any other. It gets everything over `/v1`, the event streams and `/jolokia`, with the API key
that its user enters. This room only serves the files of the page, which are in `page/`.

The room imports `service.contract` and nothing else of the service. Begin with `views`.
"""
