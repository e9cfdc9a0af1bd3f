"""The pages for people who operate the service, try it out, or write programs that use it.

The dashboard at `/` shows boards, ranks and the health of a node. It is a client like any other: it gets all data over
`/v1`, the event streams and `/jolokia`, with the API key that its user enters. `views` only serves the page's files,
which are in `page/`.

The page at `/docs` shows the API. A script of the documentation writes this page from the OpenAPI document. The page
shows no data from the store, so it needs no key. The package imports `service.contract` and `service.http`. Begin with
`views`.
"""
