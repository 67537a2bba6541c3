"""What the processes of a group tell each other through the store by which they found each other."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import datetime
import pickle
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from attn import _distributed
from attn.errors import NcclError

T = TypeVar("T")

BEAT = 2.0  # seconds between signs of life
SILENCE = 20.0  # without one a rank is lost
ENDED, FAILED = "ended", "failed"  # `State.over`; the second: by an exception that nobody caught
_ASKING = 1.0  # seconds between two looks for lost ranks
_LATE = 3 * BEAT  # between two looks: this process stood still, and perhaps the other one, too
_SLOW = datetime.timedelta(seconds=10)  # that the store may take
_TRIES = 5  # signs in a row that a store does not take
_LIFE = "life"
_boards: weakref.WeakSet[Board] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread that comes back from C++ must still find an interpreter. Attentions first: those end exchanges
    that others still wait for."""
    _distributed.close_all()
    failed = hasattr(sys, "last_type")  # an exception that nobody caught
    for each in list(_boards):
        each.close(failed)


@dataclasses.dataclass
class State:
    """What a rank says of itself: its calls (`Steps`), and a sign of life that is another one each time."""

    sign: tuple[str, int]  # the process, and how often it said something
    over: str = ""  # ENDED or FAILED
    last: int = 0  # the last call that exchanges
    failed: dict[int, str] = dataclasses.field(default_factory=dict)  # unsettled calls, and why
    settled: int = 0  # the last call that failed on all ranks
    end: str = ""  # why it makes no other call


class Board:
    """The store, for any number of threads. PyTorch's own collectives cannot do what is here: when a rank does not
    come, a gloo group is of no more use, and NCCL's timeout ends the process. While a board is open, a thread of
    this process shows that it lives: so others notice that it has died, or stopped, but not that it has nothing to
    say.

    A store may still have what was written in an earlier life of the group, by processes that are gone. So rank 0
    gives each life a name, below which everything is written. The name that another rank finds first may be that
    of an earlier one: it looks for a newer one until rank 0 has answered it there."""

    def __init__(self, store: Store, rank: int, size: int):
        own = _own_connection(store)
        self._whole = PrefixStore("attn", store if own is None else own)
        self._store: Store | None = None
        self._life = b""
        self.rank, self.size = rank, size
        self.own = State((uuid.uuid4().hex, 0))
        self.is_answered = rank == 0
        # A rank could seem lost that waits for something, if the store has one connection alone.
        self.shows_life = size > 1 and own is not None
        self._telling, self._looking = threading.Lock(), threading.Lock()
        self._seen: dict[int, tuple[Any, float]] = {}  # by rank, its sign, and since when it is that
        self._looked = 0.0
        self._over, self._failed = threading.Event(), False
        if rank == 0:
            self._begin(uuid.uuid4().hex.encode())
            for other in range(size):
                self.write(state_of(other), b"")
                self.write(question_of(other), b"")
            _tried(lambda: self._whole.set(_LIFE, self._life.decode()))
        self._thread = threading.Thread(target=self._beat, daemon=True)
        if self.shows_life:
            self._thread.start()
        _boards.add(self)

    def close(self, failed: bool = False) -> None:
        """Stops signs of life, and says that this rank has ended, or failed: whoever waits for it waits in vain.
        `failed`: the process ends by an exception."""
        self._failed = self._failed or failed
        self._over.set()
        if self.shows_life and self._thread is not threading.current_thread():
            self._thread.join(2 * BEAT)

    def find_life(self) -> str | None:
        """The name of the group's life, as far as this rank knows; None before rank 0 has come. For one thread."""
        if not self.is_answered:
            life = _tried(lambda: self._whole.get(_LIFE) if self._whole.check([_LIFE]) else b"")
            if life != self._life:
                self._begin(life)
        return self._life.decode() or None

    # Once `find_life` has found one:

    @property
    def _there(self) -> Any:
        assert self._store is not None
        return self._store

    def write(self, key: str, value: bytes) -> None:
        """Sets a key of the store. Raises NcclError if the store does not answer."""
        _tried(lambda: self._there.set(key, value))

    def read(self, keys: Sequence[str]) -> list[bytes]:
        """The values of keys that exist."""
        return _tried(lambda: self._there.multi_get(keys)) if keys else []

    def has(self, key: str) -> bool:
        """Whether there is such a key."""
        return bool(_tried(lambda: self._there.check([key])))

    def remove(self, key: str) -> None:
        """Removes a key of the store. Raises NcclError if the store does not answer."""
        _tried(lambda: self._there.delete_key(key))

    def tell(self) -> None:
        """Shows the others what `own` is now. Raises NcclError if the store does not answer."""
        with self._telling:  # an older state must not replace a newer one
            if self._store is not None:
                self.own.sign = self.own.sign[0], self.own.sign[1] + 1
                self.write(state_of(self.rank), pickle.dumps(self.own))

    def states(self) -> dict[int, State]:
        """What the other ranks say; nothing of those that have not come. Empty until rank 0 has answered: what is
        found before may be of an earlier life."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        said = self.read([state_of(rank) for rank in others]) if self.is_answered else []
        return {rank: pickle.loads(each) for rank, each in zip(others, said) if each}

    def lost(self, states: dict[int, State], awaited: Collection[int] = ()) -> str | None:
        """Which rank has ended by an exception, or given no sign of life for SILENCE seconds of looking, or which
        of the awaited ones has ended at all, in words."""
        with self._looking:
            now = time.monotonic()
            was_late, self._looked = now - self._looked > _LATE + _pause(self.size), now
            for rank, state in states.items():
                sign, since = self._seen.get(rank, (None, now))
                if state.over == FAILED:
                    return f"rank {rank} is lost: its process ended with an exception"
                if state.over and rank in awaited:
                    return f"rank {rank} is lost: it has ended"
                if state.sign != sign or was_late:
                    self._seen[rank] = state.sign, now
                elif self.shows_life and not state.over and now - since >= SILENCE:
                    return f"rank {rank} is lost: it gave no sign of life for {SILENCE:g} s"
        return None

    def wait(self, look: Callable[[], T | None], seconds: float, in_vain: Callable[[], str | None]) -> T | None:
        """What `look` finds, as soon as that is something; None after the time. Raises NcclError for what
        `in_vain` says, which is asked while that takes long."""
        begin = asked = time.monotonic()
        pause = 1e-3
        while (found := look()) is None:
            now = time.monotonic()
            if now - begin >= seconds:
                return None
            if now - asked >= _pause(self.size):
                asked, why = now, in_vain()
                if why is not None:
                    found = look()  # what it did before
                    if found is not None:
                        break
                    raise NcclError(why, ["all ranks of the group must make the same calls"], "nccl")
            time.sleep(min(pause, begin + seconds - now))
            pause = min(1.5 * pause, 0.05)
        return found

    def _beat(self) -> None:
        """The end of a rank that was never answered is not told: its life may be over, and another process of the
        same rank live. Nothing is written to a store that did not answer: PyTorch would print that."""
        failures = 0
        while dist.is_initialized() and failures < _TRIES:  # a destroyed group may have no store any more
            try:
                self.tell()
                failures = 0
            except NcclError:
                failures += 1
            if self._over.wait(BEAT):
                break
        if failures == 0 and self.is_answered:
            self.own.over = FAILED if self._failed else ENDED
            with contextlib.suppress(NcclError):
                self.tell()

    def _begin(self, life: bytes) -> None:
        self._store, self._life = PrefixStore(life.decode(), self._whole), life


def _own_connection(store: Any) -> Store | None:
    """A clone of the store with a connection of its own: no other thread can use PyTorch's connection while PyTorch
    waits on it. None in older versions of PyTorch, and for stores that allow only one connection."""
    try:
        own: Any = store.clone()
    except (AttributeError, RuntimeError):
        return None
    usual = store.timeout
    own.set_timeout(_SLOW)
    if store.timeout != usual:  # it is the same one
        own.set_timeout(usual)
    found: Store = own
    return found


def _pause(size: int) -> float:
    """Seconds between two looks at the states of all ranks: many ranks would ask the store for too much."""
    return max(_ASKING, size / 128)


def state_of(rank: int) -> str:
    """The key of what a rank says of itself."""
    return f"state/{rank}"


def question_of(rank: int) -> str:
    """The key of what a rank asks rank 0."""
    return f"asks/{rank}"


def _tried(call: Callable[[], T]) -> T:
    try:
        return call()
    except RuntimeError as error:
        raise NcclError(
            f"the group's store does not answer: {error}",
            ["the process that keeps it, as a rule rank 0, may have ended"],
            "nccl",
        ) from error
