"""Keeps the calls of a distributed attention in step."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import torch.distributed as dist

from attn.errors import NcclError
from attn.torch.board import SILENCE, Board

_NEWS = "news"


class Steps:
    """The calls of all attentions of a group, of one rank: they share a communicator. Ranks exchange in the order
    of their calls, so a call that fails on one rank before it exchanges must fail on all: otherwise the next call
    of that rank would exchange with this one of the others. A rank whose call failed tells the others. They find
    that out while they wait for it; and it makes no other call before it knows that the same one failed on all.

    Calls that are captured into CUDA graphs are not counted: they exchange later, and as often as they like.
    Calls come one after the other, in the same order on all ranks; `in_vain` and `end` are for any thread.
    `seconds`: how long a rank whose call failed waits for the others."""

    def __init__(self, board: Board, name: str, seconds: float):
        self.name, self.seconds = name, seconds
        self._board = board
        self._aborts: list[weakref.WeakMethod] = []
        self._asking = threading.Lock()  # in_vain
        self._count = 0  # calls that have begun
        self._lock = threading.Lock()  # of what follows
        self._last = 0  # the last call that exchanges
        self._failed: dict[int, str] = {}  # calls, and why
        self._end = ""  # why there will be no other call
        self._unsettled: set[int] = set()
        self._opening = False
        self._news: int | None = None  # that was heard; none yet
        self._heard: list[tuple[int, dict[int, str], str]] = []  # the news until then
        self._unknown: tuple[int, float, float] | None = None  # last call, since when, and when asked
        weakref.finalize(self, _forget, board, self._key(board.rank), os.getpid()).atexit = False

    def add(self, abort: Callable[[str], None]) -> None:
        """A bound method that ends what waits for other ranks. It is called as long as its object exists."""
        self._aborts = [each for each in self._aborts if each() is not None]
        self._aborts.append(weakref.WeakMethod(abort))

    @contextlib.contextmanager
    def call(self, counts: bool = True) -> Iterator[None]:
        """A call that calls `exchanges` before it does. Raises NcclError if it is not in step."""
        self._settle()
        if not counts or self._board.size == 1:
            yield
            return
        self._count += 1
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise

    def exchanges(self, counts: bool = True) -> None:
        """Notes that from here on others may wait for what this call does, and it for them."""
        if counts:
            with self._lock:
                self._last = self._board.calls[self.name] = self._count

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Marks the time in which a new attention is made, which needs all ranks."""
        self._opening = True
        try:
            yield
        finally:
            self._opening = False

    def refuse(self, error: BaseException) -> None:
        """A call that fails before anything else."""
        if self._board.size > 1:
            self._count += 1
            self._fail(error)

    def end(self, why: str) -> None:
        """Ends all exchanges: calls of all ranks are refused."""
        with self._lock:
            self._end = self._end or why
        self._tell()

    def in_vain(self) -> str | None:
        """Why other ranks cannot answer what was exchanged until now; None as far as is known. Asked while an
        exchange takes long."""
        with self._asking:
            try:
                why = self._why()
                self._unknown = None
            except NcclError as error:  # of the store
                why = error.message if self._is_long_unknown() else None
        if why is not None:
            self.end(why)
        return why

    def _is_long_unknown(self) -> bool:
        """Whether the store has not answered for SILENCE seconds of the same wait: its process may have ended,
        which need not be one of this group."""
        now = time.monotonic()
        if self._unknown is None or self._unknown[0] != self._last or now - self._unknown[2] > SILENCE:
            self._unknown = (self._last, now, now)
        last, since, _ = self._unknown
        self._unknown = (last, since, now)
        return now - since >= SILENCE

    # ---- This rank's news ----

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failed[self._count] = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
            self._unsettled.add(self._count)
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            news = json.dumps({"failed": self._failed, "end": self._end})
        with contextlib.suppress(NcclError):  # then nobody can be told
            self._board.write(self._key(self._board.rank), news.encode())
            self._board.add(_NEWS, 1)

    # ---- Those of the others ----

    def _key(self, rank: int) -> str:
        return f"calls/{self.name}/{rank}"

    def _others(self) -> Iterator[tuple[int, dict[int, str], str]]:
        """Yields each rank that has news: its calls that failed, and why it makes no others."""
        for rank in range(self._board.size):
            said = None if rank == self._board.rank else self._board.read(self._key(rank))
            if said:
                news = json.loads(said)
                yield rank, {int(call): why for call, why in news["failed"].items()}, news["end"]

    def _why(self) -> str | None:
        lost = self._board.lost()
        if lost is not None:
            return lost
        news = self._board.add(_NEWS, 0)
        if news != self._news:
            self._news, self._heard = news, list(self._others())
        with self._lock:
            last, own = self._last, set(self._failed)
        for rank, failed, end in self._heard:
            for call in sorted(failed):
                if call <= last and call not in own:
                    return f"call {call} failed on rank {rank} alone: {failed[call]}"
            if end:
                return f"rank {rank} has ended its exchanges: {end}"
        for rank, calls in self._board.ended().items():
            made = calls.get(self.name, 0)
            if made < last or self._opening:
                return f"rank {rank} is lost: it has ended after call {made}"
        return None

    def _settle(self) -> None:
        """Waits until what failed here has failed on all ranks."""
        if not self._end and self._unsettled:
            try:
                self._wait_for_others()
            except NcclError as error:
                self.end(error.message)
                for abort in [each() for each in self._aborts]:
                    if abort is not None:
                        abort(error.message)
                raise
            self._unsettled.clear()
        if self._end:
            raise _ended(self._end)

    def _wait_for_others(self) -> None:
        missing = set(range(self._board.size)) - {self._board.rank}

        def look() -> bool | None:
            for rank, failed, end in self._others():
                late = self._unsettled - set(failed)
                if not late:
                    missing.discard(rank)
                elif end:
                    raise _ended(f"rank {rank}: {end}")
                elif any(call > min(late) for call in failed):
                    raise _ended(f"call {min(late)} failed on rank {self._board.rank}, but not on rank {rank}")
            return None if missing else True

        if self._board.wait(look, self.seconds, missing) is None:
            raise _ended(f"call {max(self._unsettled)} failed on rank {self._board.rank}, but not on rank"
                         f" {min(missing)} within {self.seconds:g} s")


def _ended(why: str) -> NcclError:
    return NcclError(
        f"the attentions of this group exchange nothing any more: {why}",
        ["ranks must make the same calls: make a new group, and distribute its attentions again"],
        "nccl",
    )


def _forget(board: Board, key: str, process: int) -> None:
    """Blanks the news, if there were any: others may look at them just now. A forked process has none. A group that
    was destroyed may have no store any more, and PyTorch would print that."""
    if os.getpid() != process or not dist.is_initialized():
        return
    with contextlib.suppress(NcclError):
        if board.read(key):
            board.write(key, b"")
