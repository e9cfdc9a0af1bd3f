"""Handles what every request needs before and after its handler: parsing it into a `Call`, and writing the answer.

    bytes ──malformed──> route_table ──> endpoint ──> handler of a view
                                          │  foreign_pages  refuse requests from foreign web pages, or let some read
                                          │  api_keys       identify the caller and check the role
                                          │  rate_limits    check the rate of the API key, or of a caller without one
                                          │  bodies         read the body, within its limits
                                          │  relay          in a front process: pass on the requests that write
                                          └─ fast_json      compress a long answer, and write it

This package may import `contract`, `telemetry`, storage and jobs. It knows no handler and no board. Whatever goes
wrong, the caller gets a problem document. The log stays free of API keys, request bodies and owners' names, because
logs travel further than the data.

Begin with `endpoint`. `openapi` reads the OpenAPI document, which a script of the documentation writes from the routes.
`api_key_watch` polls the store for new and revoked API keys.
"""
