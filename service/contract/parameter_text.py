"""Checks that the text of a query parameter has the form of its type.

The OpenAPI document allows only these forms. Without the check, msgspec would read `null` as a missing value, `1e2` as
a whole number, `1` as true, and a number as a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from .problems import ProblemError, clip_text

_WHOLE = "-?(0|[1-9][0-9]*)"


class TextForm(NamedTuple):
    pattern: re.Pattern[str]
    name: str  # for error messages


_FORMS: dict[type[msgspec.inspect.Type], TextForm] = {
    msgspec.inspect.IntType: TextForm(re.compile(_WHOLE), "a whole number"),
    msgspec.inspect.FloatType: TextForm(re.compile(_WHOLE + r"(\.[0-9]+)?([eE][+-]?[0-9]+)?"), "a number"),
    msgspec.inspect.BoolType: TextForm(re.compile("true|false"), "true or false"),
    msgspec.inspect.DateTimeType: TextForm(re.compile("[0-9]{4}-.*"), "a time as in ISO 8601"),
}


def text_forms(kind: type[msgspec.Struct]) -> dict[str, TextForm]:
    """Return the forms of a query's parameters, by name. The form of a list is that of each member of the list.

    Parameters whose text may be anything are left out.
    """
    forms = {
        field.encode_name: _form_of(msgspec.inspect.type_info(field.type)) for field in msgspec.structs.fields(kind)
    }
    return {name: form for name, form in forms.items() if form is not None}


def _form_of(kind: msgspec.inspect.Type) -> TextForm | None:
    if isinstance(kind, msgspec.inspect.Metadata):
        return _form_of(kind.type)
    if isinstance(kind, msgspec.inspect.VarTupleType):
        return _form_of(kind.item_type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return next((form for each in kind.types if (form := _form_of(each))), None)
    if isinstance(kind, msgspec.inspect.LiteralType):
        names = [str(value) for value in kind.values]
        return TextForm(re.compile("|".join(map(re.escape, names))), " or ".join(names))
    return _FORMS.get(type(kind))


def check_forms(found: Mapping[str, str | tuple[str, ...]], forms: Mapping[str, TextForm]) -> None:
    """Raise ProblemError `bad_request` if the text of a parameter does not match the parameter's form."""
    for name, form in forms.items():
        value = found.get(name, ())
        for text in (value,) if isinstance(value, str) else value:
            if not form.pattern.fullmatch(text):
                raise ProblemError("bad_request", f"{name} takes {form.name}, not {clip_text(text)!r}", pointer=name)
