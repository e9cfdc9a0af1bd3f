"""The files of the page, read and compressed once in each process.

The files in `page/` are listed once, at the first request. A name from a request is only looked up in that list and
never becomes part of a path.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parent / "page"
INDEX = "index.html"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    content: bytes
    compressed: bytes
    etag: str  # a weak tag, because the plain and the compressed form share it
    media_type: str


@cache
def page_files() -> dict[str, PageFile]:
    return {path.name: _read(path) for path in sorted(PAGE.iterdir()) if path.suffix in MEDIA_TYPES}


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    return PageFile(
        content=content,
        compressed=gzip.compress(content, compresslevel=9, mtime=0),  # mtime=0: every process makes the same bytes
        etag=f'W/"{hashlib.sha256(content).hexdigest()[:20]}"',
        media_type=MEDIA_TYPES[path.suffix],
    )
