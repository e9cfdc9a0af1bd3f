"""Shows a person at a terminal the addresses of a starting service. Programs find the same addresses in the log."""

import sys
from collections.abc import Sequence


def show_urls(addresses: Sequence[str]) -> None:
    """Print the URL of each address (`HOST:PORT`) on the first of stdout and stderr that is a terminal."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and stream.isatty():
            urls = ", ".join(map(url_of, addresses))
            print(f"rankcurve serves {urls} (Ctrl-C ends it)", file=stream, flush=True)
            return


def url_of(address: str) -> str:
    """Return `http://127.0.0.1:8080` for `127.0.0.1:8080`; an IPv6 address gets its brackets."""
    host, _, port = address.rpartition(":")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
