"""A hello-world route on the service's versions of aiohttp and uvloop.

The rate of this route is the highest rate that aiohttp and uvloop reach on this machine. It is an ordinary aiohttp
application with one route, a prebuilt body and no access log.
"""

import sys

import uvloop
from aiohttp import web

_BODY = b'{"hello":"world"}'


async def hello(request: web.Request) -> web.Response:
    return web.Response(body=_BODY, content_type="application/json")


def main(port: int) -> None:
    app = web.Application()
    app.router.add_get("/hello", hello)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None, loop=uvloop.new_event_loop())


if __name__ == "__main__":
    main(int(sys.argv[1]))
