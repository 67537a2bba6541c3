"""Mods that were traced before: which of the traces that are kept is theirs, known from what they read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

from attn.tracing.reads import Read, key_of


_NO_CHILD: tuple[Any, None] = (object(), None)  # equal to no key


class _Node:
    """A node in a tree of traces: the read that traces do next if all their earlier reads found the same. `next` has
    the child for each key of what this read finds."""

    __slots__ = ("read", "next", "last", "end")

    def __init__(self) -> None:
        self.last: tuple[Any, _Node | None] = _NO_CHILD  # the child of the last look-up: keys take long to hash
        self.read: Read | None = None
        self.next: dict[Any, _Node] = {}
        self.end: Any = None  # what is kept, if nothing more was read

    def give_up(self) -> None:
        """Forgets the traces below this node. Two of them went on differently although all their reads found the
        same so far: they depend on something that no read shows."""
        self.read, self.next, self.last, self.end = _UNKNOWN, {}, _NO_CHILD, None


_UNKNOWN: Read = (-1, lambda value, name: None, None)


class KnownMods:
    """Keeps something for mods by what they read. A look-up does the reads of their trace, and no others, so
    that its time depends neither on how many are kept nor on what else the mods could reach. Holds no object
    of the user but constants and code. For any number of threads."""

    def __init__(self, most: int):
        self._most = most
        self._lock = threading.Lock()
        self._groups = _Node()
        self._newest: Any = None
        self._paths: OrderedDict[int, list[tuple[_Node, Any]]] = OrderedDict()
        self._kept: dict[int, Any] = {}  # so that no id is used again

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, group: Hashable, mods: tuple[Any, ...]) -> tuple[Any, Sequence[Any]]:
        """What is kept for mods that mean the same, or None; and the values that were read."""
        values: list[Any] = [mods]
        node = self._groups.next.get(group)
        if node is None:
            return None, values
        places: dict[int, int] = {}
        while node.read is not None:
            of, how, name = node.read
            if of < 0:
                return None, values
            try:
                value = how(values[of], name)
                key = key_of(value, places, len(values))
                last, child = node.last
                if key != last:
                    child = node.next.get(key)
                    if child is not None:
                        node.last = key, child
            except Exception:  # of the user's code: the trace will say it
                return None, values
            if child is None:
                return None, values
            node = child
            values.append(value)
        found = node.end
        if found is not self._newest:
            with self._lock:
                if id(found) in self._paths:
                    self._paths.move_to_end(id(found))
                    self._newest = found
        return found, values

    def put(self, group: Hashable, steps: Sequence[tuple[Read, Any]], kept: Any) -> None:
        """Keeps something for mods of which a trace did these reads."""
        with self._lock:
            node = self._groups.next.setdefault(group, _Node())
            path: list[tuple[_Node, Any]] = [(self._groups, group)]
            for read, key in steps:
                if node.read is None and node.end is None:
                    node.read = read
                if node.read != read:
                    return node.give_up()
                path.append((node, key))
                node = node.next.setdefault(key, _Node())
            if node.read is not None:
                return node.give_up()
            node.end = kept
            self._paths[id(kept)], self._kept[id(kept)], self._newest = path, kept, kept
            while len(self._kept) > self._most:
                self._drop()

    def clear(self) -> None:
        """Forgets all meanings. Thread-safe."""
        with self._lock:
            self._groups, self._newest = _Node(), None
            self._paths.clear()
            self._kept.clear()

    def _drop(self) -> None:
        """The one that was not used for the longest time."""
        oldest, path = self._paths.popitem(last=False)
        del self._kept[oldest]
        for node, key in reversed(path):
            node.next.pop(key, None)
            node.last = _NO_CHILD
            if node.next:
                break
