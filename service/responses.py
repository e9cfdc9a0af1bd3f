"""Responses that do not name the software behind them: aiohttp adds `Server` with its own version and Python's."""

from __future__ import annotations

from aiohttp import hdrs, web


class _Unnamed(web.StreamResponse):
    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()  # the only place where aiohttp adds it
        self.headers.pop(hdrs.SERVER, None)


class PlainResponse(_Unnamed, web.Response):
    """An answer in one piece."""


class PlainStream(_Unnamed):
    """An answer that goes on."""
