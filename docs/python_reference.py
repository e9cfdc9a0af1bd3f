"""Writes the Python client's reference from the signatures and docstrings of its classes."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import rankcurve
from rankcurve import answers, column_words
from rankcurve.client import Operations

ABOUT = """# The Python client, method by method

[The guide](../clients/python/README.md) says how to use it. `.venv/bin/python docs/write_reference.py` writes this page
from the code, and a test compares the two. Python shows the same: `help(rankcurve.Client.post)`.

`AsyncClient` has the methods of `Client` as coroutines; a method that returns an `Iterator` returns an `AsyncIterator`
there, and `buffer` and `leases` return `AsyncPostBuffer` and `AsyncLeases`.
"""
WIDTH = 100  # of a signature on one line
MADE_BY_CLIENT = ("PostBuffer", "Leases", "Lease")
CLASSES = ("PostBuffer", "Leases", "Lease", "OfflineCurve", "Retries")
_SECTION = re.compile(r"    # (\w.*)")
_METHOD = re.compile(r"    def (\w+)\(")
_ADDRESS = re.compile(r"<(?:built-in )?function (\w+)[^>]*>")


def write_python_reference() -> str:
    """Return the text of the page."""
    lines = [ABOUT, *_describe("Client", rankcurve.Client, heading="##")]
    for section, names in _list_sections():
        lines += [f"## {section}", ""]
        for name in names:
            lines += _describe(name, getattr(rankcurve.Client, name))
    for name in CLASSES:
        kind = getattr(rankcurve, name)
        lines += _describe(name, kind, heading="##")
        for method, member in inspect.getmembers(kind, inspect.isroutine):
            if not method.startswith("_") and method not in ("run", "iterate") and member.__doc__:
                lines += _describe(method, member)
    lines += ["## Columns in words", "", "```text", str(column_words.__doc__).partition("\n\n")[2].strip(), "```", ""]
    lines += ["## Answers", "", "Members that a newer service adds are ignored.", ""]
    for name, kind in vars(answers).items():
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and not name.startswith("_"):
            lines += _describe(name, kind)
    return "\n".join(lines).rstrip() + "\n"


def _list_sections() -> Iterator[tuple[str, list[str]]]:
    """Yield the comments that group the clients' methods, each with the names of the methods below it."""
    section, names = "", list[str]()
    for line in inspect.getsource(Operations).splitlines():
        if found := _SECTION.fullmatch(line):
            if names:
                yield section, names
            section, names = found[1], []
        elif (found := _METHOD.match(line)) and not found[1].startswith("_"):
            names.append(found[1])
    yield section, names


def _describe(name: str, described: Any, heading: str = "###") -> Iterator[str]:
    yield f"{heading} {name}"
    yield ""
    if name not in MADE_BY_CLIENT:
        yield "```python"
        yield f"{name}{_signature(described)}"
        yield "```"
        yield ""
    text = inspect.getdoc(described) or ""
    if name == "Client":
        text += f" {inspect.getdoc(described.__init__)}"
    text, raises, errors = text.partition("\nRaises:\n")
    yield text + raises + re.sub("^    (?=[^ ])", "\n- ", errors, flags=re.MULTILINE).replace("\n        ", "\n  ")
    yield ""


def _signature(described: Any) -> str:
    """Return a signature without `self`, quotes and addresses.

    If it is long, each parameter is on a line of its own.
    """
    signature = inspect.signature(described)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    text = str(signature.replace(parameters=parameters)).replace("typing.", "")  # Python 3.13 leaves it out by itself
    text = _ADDRESS.sub(r"\1", re.sub(r"""(: |-> )(['"])(.*?)\2(?=[,)=]| =|$)""", r"\1\3", text))
    if len(text) <= WIDTH:
        return text
    inside, arrow, returned = text[1:].removesuffix(")").partition(") -> ")
    return "(\n    " + re.sub(r", (?=[*/]?\*?\w*(: |, |$))", ",\n    ", inside) + "\n)" + arrow[1:] + returned
