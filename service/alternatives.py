"""Answers that are one of several types.

The rule: msgspec describes no union of untagged structs, as it could not decode one; answers are only encoded. So the
union is written down here, and the OpenAPI document adds the types.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

REF_TEMPLATE = "#/components/schemas/{name}"
ALTERNATIVES: list[type[msgspec.Struct]] = []  # what `one_of` refers to


def one_of(*kinds: type[msgspec.Struct]) -> Any:
    """A member that is one of these."""
    ALTERNATIVES.extend(kinds)
    refs = [{"$ref": REF_TEMPLATE.format(name=kind.__name__)} for kind in kinds]
    return Annotated[Any, Meta(extra_json_schema={"anyOf": refs})]


def json_text_of(*kinds: type[msgspec.Struct]) -> Any:
    """Return a member that is text: the JSON of one of these types."""
    ALTERNATIVES.extend(kinds)
    refs = [{"$ref": REF_TEMPLATE.format(name=kind.__name__)} for kind in kinds]
    described = {"contentMediaType": "application/json", "contentSchema": {"anyOf": refs}}
    return Annotated[str, Meta(extra_json_schema=described)]
