"""`GET /` and the files that it names.

The rule: every answer forbids the browser whatever the page does not need: scripts, styles and requests of other
places, text in the page that runs, and frames around it. Owners choose their names, and a page shows them.
"""

from __future__ import annotations

from typing import Any

from ..entity_tags import holds
from ..problems import Problem, shown
from ..routes import Call, Reply, Route
from .files import INDEX, PageFile, page_files

_HEADERS = {
    "Cache-Control": "no-cache",  # asked for again each time, and answered by 304: a new version is seen at once
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}
_TAG = "Operating"


async def index(context: Any, call: Call) -> Reply:
    """`GET /`."""
    return _reply(call, page_files()[INDEX])


async def part(context: Any, call: Call) -> Reply:
    """`GET /dashboard/{file}`."""
    name = call.path["file"]
    found = page_files().get(name)
    if found is None or name == INDEX:
        raise Problem("not_found", f"the page has no file {shown(name)!r}")
    return _reply(call, found)


def _reply(call: Call, file: PageFile) -> Reply:
    headers = {**_HEADERS, "ETag": file.etag}
    asked = call.request.headers
    if holds(asked.get("If-None-Match", ""), file.etag):
        return Reply(None, status=304, headers=headers)
    if not _takes_gzip(asked.get("Accept-Encoding", "")):
        return Reply(file.content, headers=headers, media_type=file.media_type)
    return Reply(file.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media_type)


def _takes_gzip(accept_encoding: str) -> bool:
    """Whether a list like `br;q=1.0, gzip` names gzip, and not with `q=0`."""
    for each in accept_encoding.lower().split(","):
        coding, _, weight = each.replace(" ", "").partition(";q=")
        if coding == "gzip":
            return weight.strip("0.") != "" or weight == ""
    return False


DASHBOARD = [
    Route(
        method="GET", path="/", handler=index, role=None, view="dashboard", tag=_TAG,
        summary="The dashboard: a page for people", statuses=(200, 304), media_type="text/html",
        response_headers=("ETag",),
        description="Boards, ranks, curves and the health of the node, over the requests of this document. It asks for "
        "a key where one is needed. Off with the setting `dashboard`.",
    ),
    Route(
        method="GET", path="/dashboard/{file}", handler=part, role=None, view="dashboard_file", tag=_TAG,
        summary="A file that the dashboard consists of", statuses=(200, 304), media_type="text/javascript",
        response_headers=("ETag",), problems=("not_found",),
    ),
]  # fmt: skip
