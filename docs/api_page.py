"""Writes the page at `/docs`, which shows people every request of the API with examples.

The page comes from the OpenAPI document of a service with the default settings, and the service serves it as a file. It
is static and loads nothing but the service's own files.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from docs.openapi_examples import Schema
from docs.openapi_operations import Example, Field, Operation, list_operations
from docs.problem_advice import ADVICE
from service.contract.problems import CODES
from service.monitoring.managed.verdict import RULES

_CODE, _BOLD, _LINK = re.compile(r"`([^`]+)`"), re.compile(r"\*\*([^*]+)\*\*"), re.compile(r"\[([^\]]+)\]\([^)]+\)")
_OPERATING = Path(__file__).parent / "operating.md"
_SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)  # of an alert: its name, its items
# The examples use URL as a shell variable, because the page does not know the address at which its reader sees it.
_BASE = "$URL"
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>rankcurve API</title>
<link rel="icon" href="/dashboard/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/dashboard/style.css">
<link rel="stylesheet" href="/dashboard/parts.css">
<link rel="stylesheet" href="/dashboard/api_page.css">
<script src="/dashboard/theme.js"></script>
<script type="module" src="/dashboard/api_page.js"></script>
</head>
<body>
<a class="skip" href="#main">Skip to content</a>
<header class="bar">
  <a class="brand" href="/"><img src="/dashboard/icon.svg" alt="" width="22" height="22">
    <span class="brand-name">rankcurve</span></a>
  <nav aria-label="Views">
    <a href="/#/boards">Overview</a>
    <a href="/#/moderation">Moderation</a>
    <a href="/#/node">Node</a>
    <a href="/docs" aria-current="page">API</a>
  </nav>
  <div class="bar-end"><button type="button" id="theme-button">Theme</button></div>
</header>
<main id="main" tabindex="-1" class="api">"""
_SEARCH = """<form role="search" class="line" id="search" hidden>
<label for="find">Find</label> <input type="search" id="find" autocomplete="off">
<button type="button" id="open-all">Open all</button> <button type="button" id="close-all">Close all</button>
<span class="state" id="found" role="status"></span>
</form>"""
_FIRST = ("create_board", "post", "top")
_USE = """<p>The commands send requests to <code>$URL</code>, the address of the service. If the service has an
API key, they need the option <code>-H "Authorization: Bearer $KEY"</code>, too. Programs find the same in
<a href="/openapi.json">/openapi.json</a>, for which they need the role reader.</p>"""


def write_page(document: Schema) -> str:
    """Return the page as HTML."""
    operations = list_operations(document)
    by_tag = [(tag, list(found)) for tag, found in groupby(operations, key=lambda each: each.tag)]
    info = document["info"]
    parts = [
        _HEAD,
        f'<h1>{escape(info["title"])} API <small class="quiet">{escape(info["version"])}</small></h1>',
        *_begin({each.id: each for each in operations}),
        _SEARCH,
        *_contents(by_tag),
        f"<details><summary>Rules of all requests</summary>{''.join(_prose(info['description']))}</details>",
    ]
    for tag, found in by_tag:
        parts.append(f'<section aria-labelledby="{_tag_id(tag)}"><h2 id="{_tag_id(tag)}">{escape(tag)}</h2>')
        for operation in found:
            parts += _operation(operation)
        parts.append("</section>")
    parts += _problems()
    parts += _alerts()
    return "\n".join([*parts, "</main>", "</body>", "</html>\n"])


def _begin(operations: dict[str, Operation]) -> Iterator[str]:
    """Yield the requests for a first try, and the address to send them to."""
    yield "<p>Create a leaderboard, post a score to it, read its top:</p>"
    commands = "\n".join(operations[each].curl(_BASE) for each in _FIRST if each in operations)
    yield f'<pre tabindex="0" aria-label="Requests to begin with"><code>{escape(commands)}</code></pre>'
    yield _USE


def _contents(by_tag: Sequence[tuple[str, list[Operation]]]) -> Iterator[str]:
    yield '<nav aria-label="Contents" class="panel contents">'
    for tag, operations in by_tag:
        yield f"<details><summary>{escape(tag)}</summary>"
        yield f'<p><a href="#{_tag_id(tag)}">All of {escape(tag)}</a></p><ul>'
        for each in operations:
            yield f'<li><a href="#{each.id}">{escape(each.summary)}</a></li>'
        yield "</ul></details>"
    yield '<p><a href="#problems">Problem codes</a>, <a href="#alerts">alerts</a></p>\n</nav>'


def _operation(operation: Operation) -> Iterator[str]:
    yield f'<details class="panel operation" id="{operation.id}"><summary>'
    yield f'<span class="method">{operation.method}</span> <code class="path">{escape(operation.path)}</code>'
    yield f'<span class="says">{escape(operation.summary)}</span> <span class="role">{operation.role}</span></summary>'
    yield f'<p class="id">{operation.id} <a href="#{operation.id}">link</a></p>'
    yield from _prose(operation.description)
    if operation.fields:
        yield "<h3>What to send</h3>\n<dl>"
        yield from map(_field, operation.fields)
        yield "</dl>"
    yield f"<h3>Example</h3>\n<pre><code>{escape(operation.curl(_BASE))}</code></pre>"
    for answer in operation.answers:
        yield from _answer(answer)
    yield '<h3>Problems</h3>\n<ul class="codes">'
    for status, code in operation.codes:
        yield f'<li>{status} <a href="#problem-{code}"><code>{code}</code></a></li>'
    yield "</ul></details>"


def _answer(answer: Example) -> Iterator[str]:
    kind = f"<code>{escape(answer.media_type)}</code>" if answer.media_type else "without a body"
    yield f"<p>Answer {' or '.join(answer.statuses)}, {kind}</p>"
    if answer.text:
        yield f"<pre><code>{escape(answer.text)}</code></pre>"


def _field(field: Field) -> str:
    required = ", required" if field.is_required else ""
    return (
        f"<dt><code>{escape(field.name)}</code> <small>{field.place}{required}</small></dt>"
        f"<dd>{_inline(f'{field.allowed}. {field.description}'.strip())}</dd>"
    )


def _problems() -> Iterator[str]:
    yield '<section aria-labelledby="problems" class="panel"><h2 id="problems">Problem codes</h2>\n<dl>'
    for code, meaning in sorted(CODES.items(), key=lambda item: (item[1].status, item[0])):
        yield f'<dt id="problem-{code}"><code>{code}</code> <small>{meaning.status}</small>'
        yield f"{escape(meaning.title)}</dt>"
        yield f"<dd>{_inline(ADVICE[code])}</dd>"
    yield "</dl></section>"


def _alerts() -> Iterator[str]:
    yield '<section aria-labelledby="alerts" class="panel"><h2 id="alerts">Alerts</h2>'
    yield "<p>What the verdict on the node means, and what to do first.</p>\n<dl>"
    text = _OPERATING.read_text(encoding="utf-8").replace("http://HOST:8080", _BASE)
    sections = dict(_SECTION.findall(text))
    for rule in RULES:
        yield f'<dt id="alert-{rule.alert}">{escape(rule.alert)} <small>{rule.severity}</small></dt>'
        for item in re.split("^- ", sections[rule.alert], flags=re.MULTILINE)[1:]:
            yield f"<dd>{_inline(' '.join(item.split()))}</dd>"
    yield "</dl></section>"


def _prose(text: str) -> Iterator[str]:
    """Yield the paragraphs of a text. Lines that begin with `* ` become a list."""
    for is_list, lines in groupby(filter(None, text.splitlines()), key=lambda line: line.startswith("* ")):
        if is_list:
            yield f"<ul>{''.join(f'<li>{_inline(line[2:])}</li>' for line in lines)}</ul>"
        else:
            yield from (f"<p>{_inline(line)}</p>" for line in lines)


def _inline(text: str) -> str:
    text = _BOLD.sub(r"<strong>\1</strong>", _LINK.sub(r"\1", escape(text, quote=False)))
    return _CODE.sub(r"<code>\1</code>", text)


def _tag_id(tag: str) -> str:
    return f"tag-{tag.lower()}"
