"""Serves the dashboard at `/`, the page at `/docs`, and the files that these pages need.

Every response tells the browser to block requests to other hosts, inline scripts, and frames around the page, because
no page needs them. The dashboard shows names that owners chose, and such a name may contain an attack.

Each process reads and compresses the files in `page/` once, at the first request. The name in a request is only looked
up among these files, and never becomes part of a path.
"""

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from service.contract.problems import ProblemError, clip_text
from service.contract.routes import Call, Reply, Route, match_entity_tag
from service.http.fast_json import accepts_gzip

PAGE = Path(__file__).parent / "page"
INDEX = "index.html"
DOCS = "docs.html"  # the page at `/docs`
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Cache-Control": "no-cache",  # browsers ask for a new version every time, and mostly get a 304
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}
_TAG = "Operating"


class PageFile(NamedTuple):
    content: bytes
    compressed: bytes
    etag: str  # weak, because the plain and the compressed content share the tag
    media_type: str


@cache
def page_files() -> dict[str, PageFile]:
    files = sorted(path for path in PAGE.iterdir() if path.is_file())
    return {
        path.name: PageFile(
            content=(content := path.read_bytes()),
            compressed=gzip.compress(content, compresslevel=9, mtime=0),  # mtime=0: every process makes the same bytes
            etag=f'W/"{hashlib.sha256(content).hexdigest()[:20]}"',
            media_type=MEDIA_TYPES[path.suffix],
        )
        for path in files
    }


async def get_index(context: Any, call: Call) -> Reply:
    return reply_with(call, page_files()[INDEX])


async def get_api_page(context: Any, call: Call) -> Reply:
    return reply_with(call, page_files()[DOCS])


async def get_page_file(context: Any, call: Call) -> Reply:
    name = call.path["file"]
    found = page_files().get(name)
    if found is None or name in (INDEX, DOCS):
        raise ProblemError("not_found", f"the page has no file {clip_text(name)!r}")
    return reply_with(call, found)


def reply_with(call: Call, file: PageFile) -> Reply:
    """Return a file as the response, plain or compressed, or 304 if the caller already has this version."""
    headers = {**_HEADERS, "ETag": file.etag}
    asked = call.request.headers
    if match_entity_tag(asked.get("If-None-Match", ""), file.etag):
        return Reply(None, status=304, headers=headers)
    if not accepts_gzip(asked.get("Accept-Encoding", "")):
        return Reply(file.content, headers=headers, media_type=file.media_type)
    return Reply(file.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media_type)


DASHBOARD = [
    Route("GET", "/", get_index, None, "dashboard", _TAG),
    Route("GET", "/dashboard/{file}", get_page_file, None, "dashboard_file", _TAG),
    Route("GET", "/docs", get_api_page, None, "api_page", _TAG),
]  # fmt: skip
