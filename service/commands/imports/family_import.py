"""Lets lines of a CSV file be posts to a family: the facets are read as columns of text, and then moved to `facets`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from rankcurve import AsyncClient
from rankcurve.answers import Board

from service.commands.imports.sending import Record


async def read_family(client: AsyncClient, family: str) -> tuple[Board, dict[str, bool]]:
    """Return a board with the columns of a family and a column of text for each facet.

    Also return the names of the facets, each with whether the family has a column of this name, too.
    """
    found = await client.family(family)
    names = {column["name"] for column in found["columns"]}
    facets = {name: name in names for listed in found.get("facets", ()) for name in listed}
    columns = [{"name": name, "merge": "last", "type": "text"} for name in sorted(facets) if not facets[name]]
    return msgspec.convert({"columns": [*found["columns"], *columns]}, Board), facets


def split_facets(lines: Iterable[Record], facets: Mapping[str, bool]) -> Iterator[Record]:
    """Yield the records with the values of facets, see `read_family`, moved from the stats of posts to their facets."""
    for line in lines:
        post = line.post
        if facets and not isinstance(post, str):
            given: Any = post["stats"]
            post["facets"] = {name: given[name].strip() for name in facets if name in given}
            post["stats"] = stats = {name: text for name, text in given.items() if facets.get(name, True)}
            if not stats:
                line = Record(line.name, "no value in any of the mapped columns")
        yield line
