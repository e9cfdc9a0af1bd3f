"""Write the OpenAPI document, the page at `/docs`, and the pages that list requests, codes, settings and methods.

    .venv/bin/python docs/write_reference.py    # after requests, types, codes, settings or the Python client changed

The pages come from the OpenAPI document of a service with the default settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from config import Settings, describe
from docs.api_page import write_page
from docs.openapi_document import build_document
from docs.openapi_examples import Schema
from docs.openapi_operations import (
    OPEN,
    Example,
    Field,
    Operation,
    format_json,
    list_common_codes,
    list_operations,
    list_path_fields,
)
from docs.problem_advice import ADVICE
from docs.python_reference import write_python_reference
from docs.typescript_types import write_typescript_types
from service.api import ROUTES
from service.contract.problems import CODES, JSON_TYPE
from service.health_routes import add_health_routes
from service.http import openapi
from service.monitoring.dashboard.views import DOCS, PAGE

HERE = Path(__file__).resolve().parent
SETTINGS = HERE / "settings.md"
BASE = "http://127.0.0.1:8080"
NOTE = "`.venv/bin/python docs/write_reference.py` writes this page from the code, and a test compares the two."
ABOUT_ENDPOINTS = f"""# Requests

Every request of the service, with an example. The service shows the same at `/docs`, and gives the OpenAPI document at
`/openapi.json`. Other lists are those of [problem codes](problems.md), [settings](settings.md) and
[metrics](metrics.md). {NOTE}

- **Roles**: reader, player, writer, ops. Each role may send what the roles before it may send, too. A player has a
  player token, and sends requests for the token's owner only. Anyone may send an open request. If the service has an
  API key, add `-H "Authorization: Bearer $KEY"` to the examples. Without any key, every other caller is ops.
- **Bounds** are those of the default settings.
- **Examples** leave out optional members.
"""
ABOUT_PROBLEMS = f"""# Problem codes

An answer with a status from 400 on is a problem document (RFC 9457, `application/problem+json`). Its `code` says what
is wrong, and never changes. Its `detail` is for people, and `errors` says where the faults are.
[Requests](endpoints.md) lists which codes each request may be answered with. {NOTE}

```json
{{
  "type": "urn:rankcurve:problem:unknown_owner", "title": "{CODES["unknown_owner"].title}", "status": 404,
  "detail": "'ada' has no entry in 'game'", "code": "unknown_owner", "errors": []
}}
```

After a status from 400 to 499 nothing of the request was applied. After 500, 503 or no answer at all it may have been.
A post with a `post_id` may be sent again as long as the id is remembered: it is applied once.

The answer to a list of posts has the status 200 even if a post was rejected. Then the `status` in the result of that
post is `rejected`, and its `error` is such a document.
"""


def write_document() -> str:
    """Return the OpenAPI document as JSON."""
    return format_json(build_document(add_health_routes(ROUTES))) + "\n"


def write_api_page() -> str:
    """Return the page at `/docs`."""
    return write_page(_read_document())


def _read_document() -> Schema:
    return openapi.read_document(add_health_routes(ROUTES), Settings())


def write_endpoints() -> str:
    """Return the page that lists the requests."""
    operations = list_operations(_read_document())
    common = list_common_codes(operations)
    lines = [ABOUT_ENDPOINTS, "## All requests", "", "| request | role | what it does |", "| --- | --- | --- |"]
    lines += [
        f"| `{each.method} {each.path}` | {each.role} | [{each.summary}](#{_heading_id(each.summary)}) |"
        for each in operations
    ]
    lines += ["", "## Names in paths", "", "A name in a path is sent in UTF-8 with percent escapes.", ""]
    lines += map(_field, list_path_fields(operations))
    lines += ["", "## Problems of all requests", ""]
    lines.append(f"Any request with a role may be answered with {_codes(common)}. The lists below leave these out.")
    for tag, of_tag in groupby(operations, key=lambda each: each.tag):
        lines += ["", f"## {tag}"]
        for operation in of_tag:
            lines += ["", *_operation(operation, common)]
    return "\n".join(lines) + "\n"


def _operation(operation: Operation, common: Sequence[str]) -> Iterator[str]:
    yield f"### {operation.summary}"
    yield ""
    yield f"`{operation.method} {operation.path}` · {operation.role} · `{operation.id}`"
    yield ""
    if operation.description:
        yield operation.description
        yield ""
    fields = [_field(each) for each in operation.fields if each.place != "path"]
    if fields:
        yield from fields
        yield ""
    yield "```sh"
    yield operation.curl(BASE)
    yield "```"
    for answer in operation.answers:
        yield from _answer(answer)
    by_status = groupby(
        [each for each in operation.codes if operation.role == OPEN or each[1] not in common], key=lambda each: each[0]
    )
    problems = [f"{status} {_codes(code for _, code in codes)}" for status, codes in by_status]
    if problems:
        yield ""
        yield f"Problems: {'; '.join(problems)}."


def _answer(answer: Example) -> Iterator[str]:
    statuses = " or ".join(answer.statuses)
    if answer.text:
        yield f"Answer {statuses}{'' if answer.media_type == JSON_TYPE else f', `{answer.media_type}`'}:"
        yield "```json" if "json" in answer.media_type else "```text"
        yield answer.text
        yield "```"
    else:
        kind = f"with `{answer.media_type}`" if answer.media_type else "without a body"
        yield f"Answer {statuses} {kind}."


def _field(field: Field) -> str:
    notes = [] if field.place in ("path", "query") else [field.place]
    if field.is_required and field.place != "path":
        notes.append("required")
    shown = f" ({', '.join(notes)})" if notes else ""
    return f"- `{field.name}`{shown}: {field.allowed}. {field.description}".rstrip()


def _codes(codes: Iterable[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


def _heading_id(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def write_problems() -> str:
    """Return the page that lists the problem codes."""
    lines = [ABOUT_PROBLEMS]
    for retried, heading, text in (
        (
            True,
            "Wait and send it again",
            "These answers have the header `Retry-After`, in seconds. The clients obey it.",
        ),
        (False, "Change something first", "The same request would be answered in the same way."),
    ):
        lines += [f"## {heading}", "", text, "", "| code | status | title | what to do |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{code}` | {each.status} | {each.title} | {ADVICE[code]} |"
            for code, each in sorted(CODES.items(), key=lambda item: (item[1].status, item[0]))
            if each.retried is retried
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def write_settings() -> str:
    """Return the page of settings with an updated table, which has a line with the default of each setting."""
    before, mark, rest = SETTINGS.read_text(encoding="utf-8").partition("<!-- settings -->\n")
    lines = ["| setting | default | unit | bounds | what it does |", "| --- | --- | --- | --- | --- |"]
    for row in describe(Settings()):
        lines.append(f"| `{row.name}` | `{row.value}` | {row.unit} | {row.bounds} | {row.description} |")
    end = "<!-- /settings -->"
    return before + mark + "\n".join(lines) + "\n" + end + rest.partition(end)[2]


def write_default_toml() -> str:
    """Return a TOML file that sets every setting to its default, with its unit, bounds and description as comments."""
    lines = [
        "# Every setting at its default. Copy what you change and start with RANKCURVE_CONFIG=your.toml;",
        "# RANKCURVE_<SETTING> in the environment and the command line win over the file.",
    ]
    defaults = Settings()
    for row in describe(defaults):
        unit = f" [{row.unit}]" if row.unit else ""
        bounds = f" ({row.bounds})" if row.bounds else ""
        # The defaults are plain ASCII text, which JSON and TOML quote in the same way.
        default = getattr(defaults, row.name)
        value = json.dumps(default) if isinstance(default, str | tuple) else row.value
        lines += ["", f"# {row.description}{unit}{bounds}", f"{row.name} = {value}"]
    return "\n".join(lines) + "\n"


# In the order in which they are written: the pages come from the document.
PAGES = {
    openapi.FILE: write_document,
    PAGE / DOCS: write_api_page,
    HERE / "endpoints.md": write_endpoints,
    HERE / "problems.md": write_problems,
    HERE / "python_client.md": write_python_reference,
    HERE.parent / "clients/typescript/src/api.ts": lambda: write_typescript_types(_read_document()),
    SETTINGS: write_settings,
    HERE.parent / "config" / "default.toml": write_default_toml,
}

if __name__ == "__main__":
    for page, write in PAGES.items():
        page.write_text(write(), encoding="utf-8")
