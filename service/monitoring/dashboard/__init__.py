"""The pages for people who operate, try or program against the service.

The dashboard at `/` shows boards, ranks and the health of a node. It is a client like any other: it gets all data
over `/v1`, the event streams and `/jolokia`, with the API key that its user enters. `views` only serves the files of
the page, which are in `page/`.

The page at `/docs` shows the API. A script of the documentation writes this page from the OpenAPI document. The page
shows no data of the store, so it needs no key. The package imports `service.contract` and `service.http`. Begin with
`views`.
"""
