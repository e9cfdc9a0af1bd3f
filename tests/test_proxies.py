"""Run nginx and Caddy with the files that docs/proxies.md shows, in front of a service and of a server that records."""

import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from config import load
from tests.servers import HOST, LocalServer, free_port
from tests.service.real_service import ROOT, WAIT_S, Process

PAGE = (ROOT / "docs" / "proxies.md").read_text(encoding="utf-8")
BODY_BYTES_MAX = 8 * 1024 * 1024
OWNER = "a/b ü%2F"


def shown(kind: str) -> str:
    """Return the block of this kind on the page."""
    [block] = re.finditer(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return block[1]


class Nginx(LocalServer):
    name = package = "nginx"

    def __init__(self, service_port: int) -> None:
        super().__init__()
        text = re.sub(r"^ *ssl_.*\n", "", shown("nginx"), flags=re.MULTILINE)
        text = text.replace("listen 443 ssl", f"listen {self.address}").replace(
            "127.0.0.1:8080", f"{HOST}:{service_port}"
        )
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        folders = "".join(f"{kind}_temp_path {self._folder.path}/{kind};\n" for kind in kinds)
        user = "user root;\n" if os.getuid() == 0 else ""
        (self._folder.path / "nginx.conf").write_text(
            f"{user}daemon off;\npid {self._folder.path}/nginx.pid;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{folders}{text}}}\n"
        )

    def arguments(self) -> list[str]:
        return ["-e", "stderr", "-p", str(self._folder.path), "-c", str(self._folder.path / "nginx.conf")]


class Caddy(LocalServer):
    name = package = "caddy"

    def __init__(self, service_port: int) -> None:
        super().__init__()
        text = shown("caddyfile").replace("ranks.example", f"http://{self.address}")
        text = text.replace("127.0.0.1:8080", f"{HOST}:{service_port}")
        options = f"{{\n\tadmin off\n\tauto_https off\n\tstorage file_system {self._folder.path}\n}}\n"
        (self._folder.path / "Caddyfile").write_text(options + text)

    def arguments(self) -> list[str]:
        return ["run", "--config", str(self._folder.path / "Caddyfile")]


PROXIES = [Nginx, Caddy]


@pytest.mark.parametrize("proxy", PROXIES)
def test_posts_and_streams_pass_a_proxy_as_the_page_configures_it(proxy: type[Nginx | Caddy], tmp_path: Path) -> None:
    with (
        Process(tmp_path, "--port", str(port := free_port())),
        proxy(port) as front,
        httpx.Client(base_url=f"http://{front.address}", timeout=WAIT_S) as client,
    ):
        board = "/v1/leaderboards/arena"
        spec = {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}]}
        assert client.put(board, json=spec).status_code == 201
        body = json.dumps({"owner": OWNER, "stats": {"xp": 1}}).encode()
        headers = {"Content-Type": "application/json"}
        largest = client.post(f"{board}/posts", content=body.ljust(BODY_BYTES_MAX), headers=headers)
        assert largest.status_code == 200, largest.text
        assert client.post(f"{board}/posts", content=body.ljust(BODY_BYTES_MAX + 1), headers=headers).status_code == 413
        assert client.get(f"{board}/entries/{quote(OWNER, safe='')}").json()["owner"] == OWNER
        with client.stream("GET", f"{board}/stream?column=xp&top=1") as stream:
            tops = (json.loads(line[5:]) for line in stream.iter_lines() if line.startswith("data:"))
            for value in range(1, 4):  # each event arrives although the stream goes on
                assert next(tops)["entries"][0]["value"] == value
                client.post(f"{board}/posts", json={"owner": OWNER, "stats": {"xp": 1}})


@pytest.fixture
def requests() -> Iterator[tuple[int, list[tuple[str, str, dict[str, str]]]]]:
    """Yield the port of a server, and its list of requests: version, path, and headers by name in lower case."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen.append((self.request_version, self.path, headers))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, seen
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_proxy_passes_on_path_and_address_by_the_newer_protocol(
    proxy: type[Nginx | Caddy], requests: tuple[int, list[tuple[str, str, dict[str, str]]]]
) -> None:
    port, seen = requests
    paths = ["/v1/leaderboards/a/entries/a%2Fb%20%C3%BC%252F?x=%2F", "/v1/leaderboards/a/stream?column=xp"]
    with proxy(port) as front:
        for path in paths:
            assert httpx.get(f"http://{front.address}{path}").status_code == 200
    assert [each[:2] for each in seen] == [("HTTP/1.1", path) for path in paths]
    for _, _, headers in seen:
        assert headers["x-forwarded-for"] == HOST
        assert headers["host"].partition(":")[0] == HOST
        assert "close" not in headers.get("connection", "")


def test_the_limits_on_the_page_are_those_of_the_service() -> None:
    settings = load({}, {})
    assert settings.body_bytes_max == BODY_BYTES_MAX
    assert "client_max_body_size 8m;" in shown("nginx")
    assert "max_size 8MiB" in shown("caddyfile")
    assert settings.stream_heartbeat_s < 3_600
    assert "proxy_read_timeout 1h;" in shown("nginx")
    assert "read_timeout 1h" in shown("caddyfile")
    assert load({}, {}, None).trusted_proxies == 0
