"""What the processes of a group write for each other into the store by which they found each other, and the
signs of life that they leave there."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import json
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import torch.distributed as dist

from attn import _distributed
from attn.errors import NcclError

T = TypeVar("T")

BEAT = 2.0  # seconds between signs of life
SILENCE = 20.0  # without one a rank is lost
_LATE = 3 * BEAT  # between two looks: this process stood still, and perhaps the other one, too
_DOUBT = 3 * BEAT  # in which another process of a rank would show itself
_GIVES_UP = 60.0  # seconds that a store fails
# Last signs, of a good end, and, behind a process's name, of an exception that nobody caught.
_ENDED, _FAILED = "ended", "failed"
_LIFE, _ENDS = "life", "ends"  # keys
_ASKING = 1.0  # seconds between two looks for lost ranks
_SLOW = datetime.timedelta(seconds=10)  # that the store may take
_boards: weakref.WeakSet[Board] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread that comes back from C++ must still find an interpreter. Attentions first: those end exchanges
    that others still wait for."""
    _distributed.close_all()
    failed = hasattr(sys, "last_type")  # an exception that nobody caught
    for each in list(_boards):
        each.close(failed)


class Board:
    """The store, by calls that do not wait, for any number of threads. While it is open, this process shows
    that it lives, and looks after the next rank: a thread does that, so it notices that the process has died,
    or stopped, but not that it has nothing to say.

    A store may still have what was written in an earlier life of the group, by processes that are gone. So rank 0
    gives each life a name, below which everything is written. The name that another rank finds first may be that
    of an earlier one: it looks for a newer one until rank 0 has answered it there, and it calls `settle`."""

    def __init__(self, store: dist.Store, rank: int, size: int):
        own = _own_connection(store)
        self._whole = dist.PrefixStore("attn", store if own is None else own)
        self._store: dist.Store | None = None  # of this life
        self._life: str | None = None
        self._naming = threading.Lock()  # what was read first must not replace a newer name
        self._settled = rank == 0
        self.rank, self.size = rank, size
        # The last call of each Steps that exchanges, by name: when this rank ends, others are told.
        self.calls: dict[str, int] = {}
        # How many ends were noted, and which ranks had ended then: one object, since threads share it.
        self._ended: tuple[int, frozenset[int]] = 0, frozenset()
        self.failed = False  # this process, which ends
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if rank == 0:
            self._begin(uuid.uuid4().hex)
            _tried(lambda: self._whole.set(_LIFE, self._life))
        if size > 1 and own is not None:  # else a rank could seem lost that waits for something
            target = _Signs(self)
            self._thread = threading.Thread(target=target.run, args=(self._over,), daemon=True)
            self._thread.start()
        _boards.add(self)

    def _begin(self, life: str) -> None:
        self._store, self._life = dist.PrefixStore(life, self._whole), life

    def life(self) -> str | None:
        """The name of the group's life, as far as this rank knows; None before rank 0 has come."""
        with self._naming:
            if not self._settled:
                found = _tried(lambda: _read(self._whole, _LIFE))
                if found is not None and found.decode() != self._life:
                    self._begin(found.decode())
            return self._life

    def settle(self) -> None:
        """Rank 0 has answered in this life."""
        self._settled = True

    @property
    def shows_life(self) -> bool:
        """Whether ranks that have ended are noticed."""
        return self._thread is not None

    def close(self, failed: bool = False) -> None:
        """Stops heartbeats and marks this rank ended, or failed: whoever waits for it waits in vain. `failed`: the
        process ends by an exception."""
        self.failed = self.failed or failed
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * BEAT)

    # Once `life` has found one:

    def write(self, key: str, value: bytes) -> None:
        """Sets a key of the store. Raises NcclError if the store does not answer."""
        _tried(lambda: self._store.set(key, value))

    def read(self, key: str) -> bytes | None:
        """The value of a key; None if there is no such key."""
        return _tried(lambda: _read(self._store, key))

    def remove(self, key: str) -> None:
        """Removes a key of the store. Raises NcclError if the store does not answer."""
        _tried(lambda: self._store.delete_key(key))

    def add(self, key: str, count: int) -> int:
        """The new number; those that were never added to are 0."""
        return _tried(lambda: self._store.add(key, count))

    def ended(self) -> dict[int, dict[str, int]]:
        """Ranks that have ended well, or have left the group, each with its `calls`."""
        return _tried(self._read_ended)

    def _read_ended(self) -> dict[int, dict[str, int]]:
        ends, (known, ranks) = self._store.add(_ENDS, 0), self._ended
        # A rank that had ended may have shown itself again.
        signs = {rank: _read(self._store, _sign(rank)) for rank in (ranks if ends == known else range(self.size))}
        ended = {rank: _calls_of(sign) for rank, sign in signs.items() if _says(sign, _ENDED)}
        if ends != known:
            self._ended = ends, frozenset(ended)
        return ended

    def lost(self, awaited: Collection[int] = ()) -> str | None:
        """Which rank has ended by an exception, or given no sign of life for SILENCE seconds (_DOUBT seconds if its
        last sign is the failure of the process that had given the one before), or which of the awaited ones has
        ended at all, in words."""
        if not self._settled:
            return None
        lost = _tried(lambda: _lost(self._store))
        gone = [] if lost is not None or not awaited else sorted(set(self.ended()).intersection(awaited))
        return f"rank {gone[0]} is lost: it has ended" if gone else lost

    def wait(self, look: Callable[[], T | None], seconds: float, awaited: Collection[int]) -> T | None:
        """What `look` finds, as soon as that is something; None after the time. Raises NcclError if a rank is
        lost, or one of the awaited ones has ended."""
        now = time.monotonic()
        end, asked, pause = now + seconds, now, 1e-3
        while True:
            found = look()
            if found is not None:
                return found
            now = time.monotonic()
            if now - asked >= _ASKING:
                asked = now
                lost = self.lost(awaited)
                if lost is not None:
                    found = look()  # what it did before
                    if found is not None:
                        return found
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
    """Signs of life of this rank, and what it makes of those of the next rank that has not ended, which may not have
    come yet."""

    def __init__(self, board: Board):
        self._board = board
        self._name = uuid.uuid4().hex  # the signs of another process of the same rank are others
        self._count = 0
        self._life: str | None = None  # of what follows
        self._noted: set[int] = set()  # ranks that have ended
        self._seen, self._since, self._looked = None, 0.0, 0.0
        self._silence = SILENCE  # after which the one that is watched is lost

    def run(self, over: threading.Event) -> None:
        now = answered = time.monotonic()
        while dist.is_initialized():  # a group that was destroyed may have no store any more
            now = time.monotonic()
            try:
                self.beat(now)
                answered = now
            except (RuntimeError, NcclError):  # the store is slow, or gone, and all that this would be of use for
                if now - answered > _GIVES_UP:
                    return
            if over.wait(BEAT):
                break
        if answered == now:
            with contextlib.suppress(RuntimeError, NcclError):
                self.end(self._board.failed)

    def beat(self, now: float) -> None:
        life = self._board.life()
        if life is None:
            return
        if life != self._life:
            self._life, self._noted, self._seen = life, set(), None
        store, rank = self._board._store, self._board.rank
        self._count += 1
        store.set(_sign(rank), f"{self._name} {self._count}")
        watched, sign = self._watched(store)
        was_late, self._looked = now - self._looked > _LATE, now
        if sign != self._seen:
            self._silence = _DOUBT if _is_failure_of(self._seen, sign) else SILENCE
        if sign is None or sign != self._seen or was_late:
            self._seen, self._since = sign, now
        elif now - self._since >= self._silence:
            _note_lost(store, watched, sign.decode())

    def _watched(self, store: dist.Store) -> tuple[int, bytes | None]:
        rank, size = self._board.rank, self._board.size
        for each in (other % size for other in range(rank + 1, rank + size)):
            sign = _read(store, _sign(each))
            if not _says(sign, _ENDED):
                self._noted.discard(each)
                return each, sign
            if each not in self._noted:
                store.add(_ENDS, 1)
                self._noted.add(each)
        return rank, None

    def end(self, failed: bool) -> None:
        """`failed`: by an exception that nobody caught. After another end, what this rank has sent is received:
        attentions are closed, which waits for it. Then nothing is read: the process that keeps the store may have
        ended just now, and PyTorch would print that. The life of a rank that was never answered may be over, and
        the sign be that of another process of the same rank: it says nothing of a good end, and a failure counts
        only if no other process shows itself."""
        store, rank, is_settled = self._board._store, self._board.rank, self._board._settled
        if store is None or not (failed or is_settled):
            return
        sign = f"{self._name} {_FAILED}" if failed else f"{_ENDED} {json.dumps(dict(self._board.calls))}"
        store.set(_sign(rank), sign)
        if failed and is_settled:
            _note_lost(store, rank, sign)


def _sign(rank: int) -> str:
    return f"sign/{rank}"


def _says(sign: bytes | None, word: str) -> bool:
    return sign is not None and sign.split()[0] == word.encode()


def _has_failed(sign: str) -> bool:
    return sign.split()[-1] == _FAILED


def _is_failure_of(before: bytes | None, sign: bytes | None) -> bool:
    """Whether the process that gave the sign before has failed; else another one of the rank may live."""
    return before is not None and sign == before.split()[0] + f" {_FAILED}".encode()


def _calls_of(sign: bytes) -> dict[str, int]:
    return json.loads(sign.split(maxsplit=1)[1])


def _note_lost(store: dist.Store, rank: int, sign: str) -> None:
    if _lost(store) is None:
        store.set("lost", f"{rank} {sign}")


def _lost(store: dist.Store) -> str | None:
    """What was noted counts only while the rank has not shown itself again."""
    noted = _read(store, "lost")
    if noted is None:
        return None
    rank, sign = noted.decode().split(maxsplit=1)
    if _read(store, _sign(int(rank))) != sign.encode():
        return None
    failed, silent = "its process ended with an exception", f"it gave no sign of life for {SILENCE:g} s"
    why = failed if _has_failed(sign) else silent
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
