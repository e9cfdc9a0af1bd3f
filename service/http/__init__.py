"""Works before and after every handler: turns the bytes of a request into a parsed `Call`, and an answer into bytes.

    bytes ──malformed──> route_table ──> endpoint ──> handler of a view
                                          │  foreign_pages  refuse requests of foreign web pages, or let some read
                                          │  api_keys       identify the caller and check the role
                                          │  rate_limits    check the rate of the API key, or of a caller without one
                                          │  bodies         read the body, within its bounds
                                          │  relay          in a front process: pass requests that write on
                                          └─ fast_json      compress a long answer, and write it

This package may import `contract`, `telemetry`, storage and jobs. It knows no handler and no board. Whatever goes
wrong, the caller gets a problem document, and the log stays free of API keys, request bodies and names of owners,
because logs travel further than the data.

A reader begins with `endpoint`. `openapi` reads the OpenAPI document, which a script of the documentation writes from
the routes. `api_key_watch` polls the store for new and revoked API keys.
"""
