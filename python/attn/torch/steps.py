"""Keeps the calls of a distributed attention in step."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator

from attn.errors import NcclError
from attn.torch.board import SILENCE, Board


class Steps:
    """The calls of all attentions of a group, of one rank: they share a communicator. Ranks exchange in the order
    of their calls, so a call that fails on one rank before it exchanges must fail on all: otherwise the next call
    of that rank would exchange with this one of the others. A rank whose call failed tells the others. They find
    that out while they wait for it; and it makes no other call before it knows that the same one failed on all.

    Calls that are captured into CUDA graphs are not counted: they exchange later, and as often as they like.
    Calls come one after the other, in the same order on all ranks; `in_vain` and `end` are for any thread.
    `seconds`: how long a rank whose call failed waits for the others."""

    def __init__(self, board: Board):
        self.seconds = 0.0
        self.board = board
        self._own = board.own
        self._aborts: list[weakref.WeakMethod[Callable[[str], None]]] = []
        self._count = 0  # calls that have begun
        self._opening = False
        self._asked = 0.0
        self._silent: float | None = None  # since when the store has not answered

    def add(self, abort: Callable[[str], None]) -> None:
        """A bound method that ends what waits for other ranks. It is called as long as its object exists."""
        self._aborts = [each for each in self._aborts if each() is not None]
        self._aborts.append(weakref.WeakMethod(abort))

    @contextlib.contextmanager
    def call(self, counts: bool = True) -> Iterator[None]:
        """A call that calls `exchanges` before it does. Raises NcclError if it is not in step."""
        self._settle()
        if not counts:
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
            self._own.last = self._count

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
        self._count += 1
        self._fail(error)

    def end(self, why: str) -> None:
        """Ends all exchanges: calls of all ranks are refused."""
        self._own.end = self._own.end or why
        self._tell()

    def in_vain(self) -> str | None:
        """Why other ranks cannot answer what was exchanged until now; None as far as is known. Asked while an
        exchange takes long."""
        now, asked = time.monotonic(), self._asked
        if now - asked < self.board.size // 128:  # by several attentions
            return None
        self._asked = now
        try:
            why, self._silent = self._why(self._own.last), None
        except NcclError as error:
            # The store's process may have ended, which need not be one of this group.
            if self._silent is None or now - asked > SILENCE:
                self._silent = now
            why = error.message if now - self._silent >= SILENCE else None
        if why is not None:
            self.end(why)
        return why

    def _fail(self, error: BaseException) -> None:
        why = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        self._own.failed = {**self._own.failed, self._count: why}  # another thread may read the old ones
        self._tell()

    def _tell(self) -> None:
        with contextlib.suppress(NcclError):  # then nobody can be told
            self.board.tell()

    def _why(self, needed: int) -> str | None:
        """Why call `needed` of all ranks will not be made."""
        states, own = self.board.states(), self._own
        lost = self.board.lost(states)
        if lost is not None:
            return lost
        for rank, state in states.items():
            for call in sorted(state.failed):
                if own.settled < call <= own.last and call not in own.failed:
                    return f"call {call} failed on rank {rank} alone: {state.failed[call]}"
            if state.end:
                return f"rank {rank} has ended its exchanges: {state.end}"
            if state.over and (self._opening or state.last < needed):
                return f"rank {rank} is lost: it has ended after call {state.last}"
        return None

    def _settle(self) -> None:
        """Waits until what failed here has failed on all ranks."""
        own = self._own
        if own.failed and not own.end:
            try:
                self._wait_for_others()
                own.settled, own.failed = max(own.failed), {}
            except NcclError as error:
                self.end(error.message)
                for abort in [each() for each in self._aborts]:
                    if abort is not None:
                        abort(error.message)
        if own.end:
            raise NcclError(
                f"the attentions of this group exchange nothing any more: {own.end}",
                ["ranks must make the same calls: make a new group, and distribute its attentions again"],
                "nccl",
            )

    def _wait_for_others(self) -> None:
        failed, rank = self._own.failed, self.board.rank
        missing = set(range(self.board.size)) - {rank}

        def look() -> bool | None:
            for other, state in self.board.states().items():
                if state.settled >= max(failed) or failed.keys() <= state.failed.keys():
                    missing.discard(other)
            return None if missing else True

        if self.board.wait(look, self.seconds, lambda: self._why(max(failed))) is None:
            raise NcclError(f"call {max(failed)} failed on rank {rank}, but not on rank {min(missing)}"
                            f" within {self.seconds:g} s", status="nccl")
