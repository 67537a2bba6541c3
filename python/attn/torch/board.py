"""What the processes of a group write for each other into the store by which they found each other, and the
signs of life that they leave there."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from attn import _distributed
from attn.errors import NcclError

T = TypeVar("T")

BEAT = 2.0  # seconds between signs of life
SILENCE = 20.0  # without one a rank is lost
_LATE = 3 * BEAT  # between two looks: this process stood still, and perhaps the other one, too
_GIVES_UP = 60.0  # seconds that a store fails
_ENDED = "ended"  # the last sign
_ASKING = 1.0  # seconds between two looks for lost ranks
_SLOW = datetime.timedelta(seconds=10)  # that the store may take
_boards: weakref.WeakSet[Board] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread that comes back from C++ must still find an interpreter. Attentions first: those end exchanges
    that others still wait for."""
    _distributed.close_all()
    for each in list(_boards):
        each.close()


class Board:
    """The store, by calls that do not wait, for any number of threads. While it is open, this process shows
    that it lives, and looks after the next rank: a thread does that, so it notices that the process has died,
    or stopped, but not that it has nothing to say."""

    def __init__(self, store: dist.Store, rank: int, size: int):
        own = _own_connection(store)
        self._store = dist.PrefixStore("attn", store if own is None else own)
        self.rank, self.size = rank, size
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if size > 1 and own is not None:  # else a rank could seem lost that waits for something
            target = _Signs(self._store, rank, (rank + 1) % size)
            self._thread = threading.Thread(target=target.run, args=(self._over,), daemon=True)
            self._thread.start()
        _boards.add(self)

    @property
    def shows_life(self) -> bool:
        """Whether ranks that have ended are noticed."""
        return self._thread is not None

    def close(self) -> None:
        """No other signs are given: whoever waits for this rank waits in vain."""
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * BEAT)

    def write(self, key: str, value: bytes) -> None:
        _tried(lambda: self._store.set(key, value))

    def read(self, key: str) -> bytes | None:
        """None if there is no such key."""
        return _tried(lambda: _read(self._store, key))

    def remove(self, key: str) -> None:
        _tried(lambda: self._store.delete_key(key))

    def add(self, key: str, count: int) -> int:
        """The new number; those that were never added to are 0."""
        return _tried(lambda: self._store.add(key, count))

    def lost(self) -> str | None:
        """Which rank has ended, or given no sign of life for SILENCE seconds, in words."""
        return _tried(lambda: _lost(self._store))

    def wait(self, look: Callable[[], T | None], seconds: float) -> T | None:
        """What `look` finds, as soon as that is something; None after the time. Raises NcclError if a rank is
        lost."""
        now = time.monotonic()
        end, asked, pause = now + seconds, now, 1e-3
        while True:
            found = look()
            if found is not None:
                return found
            now = time.monotonic()
            if now - asked >= _ASKING:
                asked = now
                lost = self.lost()
                if lost is not None:
                    raise NcclError(lost, ["all ranks of the group must make the same calls"], "nccl")
            if now >= end:
                return None
            time.sleep(min(pause, end - now))
            pause = min(1.5 * pause, 0.05)


def _own_connection(store: dist.Store) -> dist.Store | None:
    """While PyTorch waits for something by its own, nobody else can use that. None in older versions of it, and for
    stores that cannot have two."""
    try:
        own = store.clone()
    except (AttributeError, RuntimeError):
        return None
    usual = store.timeout
    own.set_timeout(_SLOW)
    if store.timeout != usual:  # it is the same one
        own.set_timeout(usual)
    return own


class _Signs:
    """Of one rank, and what it makes of those of the next one, which may not have come yet."""

    def __init__(self, store: dist.Store, rank: int, next_rank: int):
        self._store, self._rank, self._next = store, rank, next_rank
        self._name = uuid.uuid4().hex  # the signs of another process of the same rank are others
        self._count = 0
        self._seen, self._since, self._looked = None, 0.0, 0.0

    def run(self, over: threading.Event) -> None:
        answered = time.monotonic()
        while dist.is_initialized():  # a group that was destroyed may have no store any more
            now = time.monotonic()
            try:
                self.beat(now)
                answered = now
            except RuntimeError:  # the store is slow, or gone, and with it all that this would be of use for
                if now - answered > _GIVES_UP:
                    return
            if over.wait(BEAT):
                break
        # Another end may be a good one: what this rank has sent may still be on its way to others.
        if dist.is_initialized() and hasattr(sys, "last_type"):
            with contextlib.suppress(RuntimeError):
                self.end()

    def beat(self, now: float) -> None:
        self._count += 1
        self._store.set(_life(self._rank), f"{self._name}.{self._count}")
        sign = _read(self._store, _life(self._next))
        was_late, self._looked = now - self._looked > _LATE, now
        if sign is None or sign != self._seen or was_late:
            self._seen, self._since = sign, now
        elif now - self._since >= SILENCE:
            _note_lost(self._store, self._next, sign.decode())

    def end(self) -> None:
        """By an exception that nobody caught."""
        self._store.set(_life(self._rank), _ENDED)
        _note_lost(self._store, self._rank, _ENDED)


def _life(rank: int) -> str:
    return f"life/{rank}"


def _note_lost(store: dist.Store, rank: int, sign: str) -> None:
    if _lost(store) is None:
        store.set("lost", f"{rank} {sign}")


def _lost(store: dist.Store) -> str | None:
    """What was noted counts only while the rank has not shown itself again."""
    noted = _read(store, "lost")
    if noted is None:
        return None
    rank, sign = noted.decode().split()
    if _read(store, _life(int(rank))) != sign.encode():
        return None
    why = "its process ended with an exception" if sign == _ENDED else f"it gave no sign of life for {SILENCE:g} s"
    return f"rank {rank} is lost: {why}"


def _read(store: dist.Store, key: str) -> bytes | None:
    if not store.check([key]):
        return None
    try:
        return store.get(key)
    except RuntimeError:
        if store.check([key]):
            raise
        return None  # removed meanwhile


def _tried(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except RuntimeError as error:
        raise NcclError(
            f"the group's store does not answer: {error}",
            ["the process that keeps it, as a rule rank 0, may have ended"],
            "nccl",
        ) from error
