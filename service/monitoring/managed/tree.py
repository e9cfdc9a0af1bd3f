"""The tree of managed objects of a node. It finds objects by name or pattern, reads them, and runs allowed operations.

If an operation is not allowed, the tree refuses it before it checks the arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from config.settings import ManagedSettings

from .boards import BoardObjects
from .history import MetricHistory, MetricsMoment
from .metric_mapping import MetricMapping
from .object_names import ObjectName
from .objects import ForbiddenError, ManagedObject, UnknownAttributeError, UnknownObjectError, UnknownOperationError


class ObjectTree:
    """All objects of a node.

    `fixed` makes the objects that do not come from metrics. If such an object has the same name as an object from
    metrics, the two are merged.
    """

    def __init__(
        self,
        history: MetricHistory,
        mapping: MetricMapping,
        boards: BoardObjects,
        fixed: Callable[[Mapping[ObjectName, ManagedObject]], Iterable[ManagedObject]],
        limits: ManagedSettings,
    ) -> None:
        self._history, self._mapping, self._boards, self._fixed = history, mapping, boards, fixed
        self._limits = limits
        self._made_of: Mapping[ObjectName, ManagedObject] | None = None
        self._objects: dict[str, ManagedObject] = {}
        self._listed: frozenset[str] = frozenset()
        self.changed_at_s = time.time()  # Unix time when `note_changes` last found objects added or removed

    def take_snapshot(self) -> TreeSnapshot:
        moment = self._history.read_moment()
        mapped = self._mapping.map_metrics()
        if mapped is not self._made_of:
            self._made_of = mapped
            objects = {managed.name.canonical: managed for managed in mapped.values()}
            for managed in self._fixed(mapped):
                key = managed.name.canonical
                objects[key] = _merged(objects[key], managed) if key in objects else managed
            self._objects = objects
        return TreeSnapshot(moment, self._objects, self._boards)

    def note_changes(self, snapshot: TreeSnapshot) -> None:
        listed = frozenset(name.canonical for name in snapshot.list_names())
        if listed != self._listed:
            self._listed, self.changed_at_s = listed, time.time()

    async def run_operation(self, managed: ManagedObject, operation: str, arguments: Sequence[Any]) -> Any:
        """Run an operation and return its result.

        Raises:
            UnknownOperationError: the object has no operation of that name, or there are arguments.
            ForbiddenError: the setting `managed_operations` does not allow it.
        """
        found = managed.operations.get(operation)
        if found is None:
            known = ", ".join(managed.operations) or "none"
            raise UnknownOperationError(
                f"No operation {operation} found on MBean {managed.name.canonical}. Known: {known}"
            )
        if f"{managed.type}.{operation}" not in self._limits.managed_operations:
            raise ForbiddenError(f"Operation {operation} is forbidden for MBean {managed.name.canonical}")
        if arguments:
            raise UnknownOperationError(
                f"Invalid number of operation arguments. Operation {operation} requires 0 "
                f"parameters, not {len(arguments)} as given"
            )
        return await found.action()


def _merged(one: ManagedObject, other: ManagedObject) -> ManagedObject:
    return replace(
        one,
        attributes={**one.attributes, **other.attributes},
        operations={**one.operations, **other.operations},
        kind=other.kind,
    )


class TreeSnapshot:
    """The tree at one moment, from which all objects of one request are read."""

    def __init__(self, moment: MetricsMoment, objects: Mapping[str, ManagedObject], boards: BoardObjects) -> None:
        self._moment, self._objects, self._boards = moment, objects, boards
        self._found: dict[str, ManagedObject | None] = {}  # a cache: one body may name an object often
        self._values: dict[tuple[str, str], Any] = {}

    def list_names(self) -> Iterator[ObjectName]:
        yield from (managed.name for managed in self._objects.values())
        yield from self._boards.list_names()

    def find_matching(self, pattern: ObjectName) -> list[ObjectName]:
        """Return the names that match a pattern, in canonical order."""
        if not pattern.is_pattern:
            return [pattern] if self._find(pattern) is not None else []
        return sorted((name for name in self.list_names() if pattern.matches(name)), key=lambda name: name.canonical)

    def find_object(self, name: ObjectName) -> ManagedObject:
        """Return the object with a name.

        Raises:
            UnknownObjectError: there is no object of that name.
        """
        found = self._find(name)
        if found is None:
            raise UnknownObjectError(name.canonical)
        return found

    def _find(self, name: ObjectName) -> ManagedObject | None:
        if name.canonical not in self._found:
            self._found[name.canonical] = self._objects.get(name.canonical) or self._boards.find_object(name)
        return self._found[name.canonical]

    def read_attribute(self, managed: ManagedObject, attribute: str) -> Any:
        """Return an attribute's value at this moment.

        Raises:
            UnknownAttributeError: the object has no attribute of that name.
        """
        key = managed.name.canonical, attribute
        if key not in self._values:
            found = managed.attributes.get(attribute)
            if found is None:
                raise UnknownAttributeError(f"No such attribute: {attribute}")
            self._values[key] = found.read(self._moment)
        return self._values[key]
