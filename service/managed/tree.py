"""The managed objects of a node: found by name or pattern, read at a moment, operated where that is allowed.

The rule: what is not on the list of allowed operations is refused before anything else is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .boards import BoardObjects
from .groups import Grouping
from .history import History, Moment
from .object_names import ObjectName
from .objects import Forbidden, Managed, UnknownAttribute, UnknownObject, UnknownOperation


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """The bounds; each is a setting of the same name."""

    managed_operations: tuple[str, ...]  # `Type.operation`


class Tree:
    """All objects of a node. `fixed` are there always; one of the same name as a group of metrics is one with it."""

    def __init__(
        self,
        history: History,
        grouping: Grouping,
        boards: BoardObjects,
        fixed: Callable[[Mapping[ObjectName, Managed]], Iterable[Managed]],
        limits: TreeLimits,
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._history, self._grouping, self._boards, self._fixed = history, grouping, boards, fixed
        self._limits, self._now_s = limits, now_s
        self._made_of: Mapping[ObjectName, Managed] | None = None
        self._objects: dict[str, Managed] = {}
        self._listed: frozenset[str] = frozenset()
        self.changed_at_s = now_s()  # when objects last came or went, as far as anybody looked

    def look(self) -> Look:
        """The tree at this moment."""
        moment = self._history.now()
        grouped = self._grouping.objects(self._history.families)
        if grouped is not self._made_of:
            self._made_of = grouped
            objects = {managed.name.canonical: managed for managed in grouped.values()}
            for managed in self._fixed(grouped):
                key = managed.name.canonical
                objects[key] = _merged(objects[key], managed) if key in objects else managed
            self._objects = objects
        return Look(moment, self._objects, self._boards)

    def note_changes(self, look: Look) -> None:
        """Remember when the names were not what they had been."""
        listed = frozenset(name.canonical for name in look.names())
        if listed != self._listed:
            self._listed, self.changed_at_s = listed, self._now_s()

    async def execute(self, managed: Managed, operation: str, arguments: Sequence[Any]) -> Any:
        """What an operation answers.

        Raises:
            UnknownOperation: the object has none of that name, or it takes other arguments.
            Forbidden: it is not allowed.
        """
        found = managed.operations.get(operation)
        if found is None:
            known = ", ".join(managed.operations) or "none"
            raise UnknownOperation(f"No operation {operation} found on MBean {managed.name.canonical}. Known: {known}")
        if f"{managed.type}.{operation}" not in self._limits.managed_operations:
            raise Forbidden(f"Operation {operation} is forbidden for MBean {managed.name.canonical}")
        if len(arguments) != len(found.parameters):
            raise UnknownOperation(
                f"Invalid number of operation arguments. Operation {operation} requires {len(found.parameters)} "
                f"parameters, not {len(arguments)} as given"
            )
        return await found.run(*(str(argument) for argument in arguments))


def _merged(one: Managed, other: Managed) -> Managed:
    return replace(
        one,
        attributes={**one.attributes, **other.attributes},
        operations={**one.operations, **other.operations},
        kind=other.kind,
    )


class Look:
    """The tree as it is while one request is answered."""

    def __init__(self, moment: Moment, objects: Mapping[str, Managed], boards: BoardObjects) -> None:
        self._moment, self._objects, self._boards = moment, objects, boards
        self._found: dict[str, Managed | None] = {}  # a body may ask for one object a hundred times
        self._values: dict[tuple[str, str], Any] = {}

    def names(self) -> Iterator[ObjectName]:
        """Every name."""
        yield from (managed.name for managed in self._objects.values())
        yield from self._boards.names()

    def matching(self, pattern: ObjectName) -> list[ObjectName]:
        """The names that a pattern stands for, in canonical order."""
        if not pattern.is_pattern:
            return [pattern] if self._find(pattern) is not None else []
        return sorted((name for name in self.names() if pattern.matches(name)), key=lambda name: name.canonical)

    def find(self, name: ObjectName) -> Managed:
        """The object of a name.

        Raises:
            UnknownObject: there is none.
        """
        found = self._find(name)
        if found is None:
            raise UnknownObject(name.canonical)
        return found

    def _find(self, name: ObjectName) -> Managed | None:
        if name.canonical not in self._found:
            self._found[name.canonical] = self._objects.get(name.canonical) or self._boards.find(name)
        return self._found[name.canonical]

    def read(self, managed: Managed, attribute: str) -> Any:
        """An attribute's value at this moment.

        Raises:
            UnknownAttribute: the object has none of that name.
        """
        key = managed.name.canonical, attribute
        if key not in self._values:
            found = managed.attributes.get(attribute)
            if found is None:
                raise UnknownAttribute(f"No such attribute: {attribute}")
            self._values[key] = found.read(self._moment)
        return self._values[key]
