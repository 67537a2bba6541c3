"""Lists and dicts that report their items to a Watch."""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Callable

from attn.tracing import reads
from attn.tracing.objects import real
from attn.tracing.reads import MISSING

if TYPE_CHECKING:
    from attn.tracing.watching import Watch


class List(list[Any]):
    """Stands for a list of the user."""

    def __init__(self, watch: Watch, value: list[Any], place: int, wish: str):
        super().__init__(value)
        self._attn = watch, place, wish

    def _item(self, index: int) -> Any:
        watch, place, wish = self._attn
        return watch.read(place, reads.item, index, f"{wish}_{index}")

    def __len__(self) -> int:
        watch, place, wish = self._attn
        return int(watch.read(place, reads.length, None, wish))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._item(i) for i in range(*index.indices(len(self)))]
        found = self._item(operator.index(index))
        if found is MISSING:
            raise IndexError("list index out of range")
        return found

    def __iter__(self) -> Any:
        return (self._item(i) for i in range(len(self)))

    def __reversed__(self) -> Any:
        return (self._item(i) for i in reversed(range(len(self))))

    def __contains__(self, value: Any) -> bool:
        return any(each is value or each == value for each in self)

    def __radd__(self, other: Any) -> Any:
        return [*other, *self]


class Dict(dict[str, Any]):
    """Stands for a dict of the user."""

    def __init__(self, watch: Watch, value: dict[str, Any], place: int, wish: str):
        super().__init__(value)
        self._attn = watch, place, wish

    def _item(self, key: Any) -> Any:
        watch, place, wish = self._attn
        if not reads.is_constant(key):
            watch.is_opaque(f"a key of `{wish}` is a {type(key).__name__}")
            return super().get(real(key), MISSING)
        return watch.read(place, reads.item, key, f"{wish}_{key}")

    def __getitem__(self, key: Any) -> Any:
        found = self._item(key)
        if found is MISSING:
            raise KeyError(key)
        return found

    def get(self, key: Any, default: Any = None) -> Any:
        """The item of a key, or the default."""
        found = self._item(key)
        return default if found is MISSING else found

    def __contains__(self, key: Any) -> bool:
        watch, place, wish = self._attn
        if reads.is_constant(key):
            return bool(watch.read(place, reads.has, key, wish))
        return self._item(key) is not MISSING

    def __len__(self) -> int:
        watch, place, wish = self._attn
        return int(watch.read(place, reads.length, None, wish))

    def __iter__(self) -> Any:
        watch, place, wish = self._attn
        return iter(watch.read(place, reads.keys, None, wish))

    def keys(self) -> Any:
        """The keys, without reading the items."""
        return dict.fromkeys(self).keys()

    def __reversed__(self) -> Any:
        return reversed(tuple(self))


List.__name__, Dict.__name__ = "list", "dict"  # in messages


def _plain(value: Any) -> Any:
    """A container whose items were read."""
    if type(value) is List:
        return [*value]
    return {key: value[key] for key in value} if type(value) is Dict else value


def _reading(kind: type, name: str) -> Callable[..., Any]:
    """A method that reads all items of a container, and changes nothing."""
    def method(self: Any, *args: Any) -> Any:
        return getattr(kind, name)(*map(_plain, (self, *args)))

    return method


def _writing(kind: type, name: str) -> Callable[..., Any]:
    """A method that changes a container: the user's too, and nothing is known of it afterwards."""
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch, place, wish = self._attn
        watch.is_opaque(f"it changes `{wish}`")
        watch.forget(place)
        getattr(kind, name)(watch.values[place], *map(real, args), **kwargs)
        found = getattr(kind, name)(self, *args, **kwargs)
        return self if name.startswith("__i") else found

    return method


for _name in ("append extend insert pop remove clear sort reverse __setitem__ __delitem__ __iadd__ "
              "__imul__").split():
    setattr(List, _name, _writing(list, _name))
for _name in "pop popitem clear update setdefault __setitem__ __delitem__ __ior__".split():
    setattr(Dict, _name, _writing(dict, _name))
for _name in "__add__ __mul__ __rmul__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __repr__ copy index count".split():
    setattr(List, _name, _reading(list, _name))
for _name in "__or__ __eq__ __ne__ __repr__ copy values items".split():
    setattr(Dict, _name, _reading(dict, _name))
