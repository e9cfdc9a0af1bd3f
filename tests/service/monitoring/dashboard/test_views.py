"""Test the files of the dashboard over real HTTP.

Their headers restrict what a browser allows; no other file is served.
"""

import gzip
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiohttp import ClientSession
from yarl import URL

from service.contract.api_keys import make_api_key
from service.monitoring.dashboard.views import DOCS, INDEX, MEDIA_TYPES, PAGE, page_files
from tests.service.real_service import Service

BYTES_MAX = 150_000  # of script and style, compressed, with room for the headers
CHARS_MAX = 140  # of a line
FIRST = "overview.js"  # the first view that most users see
LINES_MAX = 5_950
PLAIN = {"Accept-Encoding": "identity"}


async def fetch_file(
    service: Service, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, Mapping[str, str]]:
    """Request a file. Return the status, the body as it was sent, and the headers."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        ClientSession(auto_decompress=False, skip_auto_headers=["Accept-Encoding"]) as session,
        session.request(method, URL(service.base + path, encoded=True), headers=sent) as response,
    ):
        return response.status, await response.read(), response.headers


def path_of(name: str) -> str:
    return {INDEX: "/", DOCS: "/docs"}.get(name, f"/dashboard/{name}")


async def test_the_service_serves_every_file_unchanged_with_its_media_type(service: Service) -> None:
    for name, file in page_files().items():
        status, body, headers = await fetch_file(service, path_of(name), **PLAIN)
        assert (status, body) == (200, (PAGE / name).read_bytes())
        assert headers["Content-Type"] == file.media_type == MEDIA_TYPES[Path(name).suffix]
        assert "Content-Encoding" not in headers


async def test_a_client_that_accepts_gzip_gets_the_same_file_compressed(service: Service) -> None:
    for name in page_files():
        status, body, headers = await fetch_file(service, path_of(name), Accept_Encoding="br;q=1.0, gzip;q=0.8")
        assert (status, headers["Content-Encoding"], headers["Vary"]) == (200, "gzip", "Accept-Encoding")
        assert gzip.decompress(body) == (PAGE / name).read_bytes()


async def test_all_files_together_stay_below_their_bound_in_bytes(service: Service) -> None:
    names = page_files().keys() - {DOCS}  # a page of its own
    sizes = [len((await fetch_file(service, path_of(name), Accept_Encoding="gzip"))[1]) for name in names]
    assert sum(sizes) < BYTES_MAX - 500 * len(sizes)


async def test_every_answer_forbids_browser_features_that_the_page_does_not_need(service: Service) -> None:
    for name in page_files():
        _, _, headers = await fetch_file(service, path_of(name))
        policy = dict(part.split(maxsplit=1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy == {
            "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'",
            "img-src": "'self'", "form-action": "'none'", "base-uri": "'none'", "frame-ancestors": "'none'",
        }  # fmt: skip
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


async def test_a_client_with_the_current_file_is_answered_304(service: Service) -> None:
    for name in page_files():
        _, _, headers = await fetch_file(service, path_of(name))
        tag = headers["ETag"]
        assert headers["Cache-Control"] == "no-cache"
        again = await fetch_file(service, path_of(name), If_None_Match=f'"other", {tag}')
        assert again[:2] == (304, b"")
        assert (again[2]["ETag"], "Content-Security-Policy" in again[2]) == (tag, True)
        assert (await fetch_file(service, path_of(name), If_None_Match='"other"'))[0] == 200


async def test_head_answers_the_headers_of_the_page_without_its_body(service: Service) -> None:
    for path in ("/", "/docs"):
        status, body, headers = await fetch_file(service, path, "HEAD")
        assert (status, body, headers["Content-Type"]) == (200, b"", "text/html; charset=utf-8")
        assert await service.refused("POST", path) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard/views.py", "/dashboard/nothing.js", "/dashboard/%2e%2e%2f__init__.py", "/dashboard/..%2Ffiles.py",
        "/dashboard/page%2Fdashboard.js", "/dashboard/views.js", "/dashboard/",
        "/dashboard", f"/dashboard/{INDEX}", f"/dashboard/{DOCS}", "/dashboard.js", "/docs/",
    ],
)  # fmt: skip
async def test_no_file_but_those_of_the_page_is_served(service: Service, path: str) -> None:
    assert await service.refused("GET", path) == (404, "not_found")


async def test_a_name_of_a_file_with_nul_is_refused(service: Service) -> None:
    assert await service.refused("GET", "/dashboard/%00") == (400, "bad_request")


async def test_the_paths_of_a_switched_off_dashboard_are_unknown(tmp_path: Path) -> None:
    async with Service(tmp_path, dashboard=False).running() as service:
        for method, path in [
            ("GET", "/"), ("HEAD", "/"), ("POST", "/"), ("GET", "/dashboard/dashboard.js"), ("GET", "/docs"),
        ]:  # fmt: skip
            status, _, headers = await fetch_file(service, path, method)
            assert (status, headers["Content-Type"]) == (404, "application/problem+json")
        document = await service.get("/openapi.json")
    assert "/" not in document["paths"]
    assert "/dashboard/{file}" not in document["paths"]
    assert "/docs" not in document["paths"]


async def test_the_page_itself_needs_no_key(service: Service) -> None:
    key, _ = make_api_key("", "reader", 0)
    service.context.keyring.replace_keys([key])
    for path in ("/v1/leaderboards", "/openapi.json"):
        assert await service.refused("GET", path) == (401, "unauthorized")
    for name in page_files():
        assert (await fetch_file(service, path_of(name)))[0] == 200


def texts() -> dict[str, str]:
    """Return the sources of the pages by name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(PAGE.iterdir())}


def test_the_page_links_to_no_other_host() -> None:
    allowed = {"http://www.w3.org/2000/svg"}
    found = {address for text in texts().values() for address in re.findall(r"https?://[^\s\"'<>`]+", text)}
    found = {address for address in found if not address.startswith("https://game.example/")}  # in an example
    assert found <= allowed
    assert not [name for name, text in texts().items() if re.search(r"""["'(]//\w""", text)]


def test_text_never_becomes_html_or_a_script() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc"
        r"|\beval\(|new Function|setTimeout\(\s*[\"'`]|\sstyle=|\son\w+=\"|javascript:"
    )
    assert not {name: forbidden.findall(text) for name, text in texts().items() if forbidden.search(text)}
    inline = re.compile(r"<script(?![^>]*\ssrc=)|<style")
    assert not inline.search(texts()[INDEX])


def names_in(page: str, form: str) -> set[str]:
    return set(re.findall(rf'<{form}="/dashboard/([\w.]+)"', texts()[page]))


_STATIC = re.compile(r'^(?:import .*|\}) from "\./([\w.]+)";', re.M)
_LATER = re.compile(r'import\("\./([\w.]+)"\)')


def test_the_page_preloads_the_modules_of_its_first_view_and_reaches_every_other_file() -> None:
    sources = texts()

    def reach(names: set[str], form: re.Pattern[str]) -> set[str]:
        """Return the modules that these import, those that they import in turn, and so on."""
        found: set[str] = set()
        while names := {each for name in names for each in form.findall(sources[name])} - found:
            found |= names
        return found

    later = set(_LATER.findall(sources["dashboard.js"]))
    assert names_in(INDEX, 'link rel="modulepreload" href') == reach({"dashboard.js", FIRST}, _STATIC) | {FIRST}
    named = {name for page in (INDEX, DOCS) for name in names_in(page, r"[^>]*(?:href|src)")}
    assert named | {INDEX, DOCS} | later | reach(later, _STATIC) == page_files().keys()


@pytest.mark.parametrize("page", [INDEX, DOCS])
def test_every_property_that_a_style_sheet_uses_is_declared(page: str) -> None:
    sheet = "".join(texts()[name] for name in names_in(page, 'link rel="stylesheet" href'))
    used, declared = (set(re.findall(form, sheet)) for form in (r"var\((--[\w-]+)", r"(--[\w-]+):"))
    assert used <= declared


def test_no_file_of_the_page_is_longer_than_400_lines_and_all_are_bounded() -> None:
    written = {name: text.splitlines() for name, text in texts().items() if name != DOCS}
    assert {name: len(lines) for name, lines in written.items() if len(lines) > 400} == {}
    assert sum(map(len, written.values())) <= LINES_MAX
    long = {
        f"{name}:{at}" for name, lines in written.items() for at, line in enumerate(lines, 1) if len(line) > CHARS_MAX
    }
    assert long == set(), "break the line instead of joining calls to meet the bound on lines"
