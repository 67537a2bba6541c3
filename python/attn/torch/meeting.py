"""What ranks agree on, through a board."""

from __future__ import annotations

import contextlib
import pickle
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import torch

from attn.errors import CompilerError, CudaError, Error, NcclError
from attn.torch.board import Board

_PART = 4 << 20  # bytes that a store takes at once
_MORE = 2.0  # seconds that the others wait longer than rank 0: it knows best who is missing


class Meetings:
    """Meetings of the ranks of a board, one after the other. Each rank asks rank 0, which hears all before it answers.

    Each question has a name of its own, which its answer repeats: so no rank hears the answer to another
    question, such as one that it gave up before. A question says what it is about: if ranks ask for different
    things, all of those that do get an error, and can meet again."""

    def __init__(self, board: Board):
        self._board = board
        self._heard: dict[int, str] = {}  # by rank, the last question

    def hold(
        self,
        about: str,
        word: Any,
        decide: Callable[[Sequence[Any]], Any],
        seconds: float,
        patience: float | None = None,
    ) -> Any:
        """What `decide` makes of all ranks' words, on rank 0: that, or its error, on all. Raises NcclError if a
        rank does not come within `seconds`, or asks for something else. Others than rank 0 wait for it as long
        as `patience`, if given."""
        if self._board.rank == 0:
            return self._answer(about, word, decide, seconds)
        return self._ask(about, word, seconds + _MORE if patience is None else patience)

    # ---- Rank 0 ----

    def _answer(
        self, about: str, word: Any, decide: Callable[[Sequence[Any]], Any], seconds: float
    ) -> Any:
        questions, failed = self._hear(seconds)
        words = [word]
        for rank, (_, other, its) in sorted(questions.items()):
            words.append(its)
            if other != about and failed is None:
                failed = NcclError(
                    f"ranks are not in step: rank 0 asks about {about}, but rank {rank} about {other}",
                    ["all ranks of the group must make the same calls; now they can meet again"],
                    "nccl",
                )
        # A rank that has given up meanwhile would not hear what the others do.
        gone = [rank for rank, (name, _, _) in sorted(questions.items()) if not self._still_asks(rank, name)]
        if gone and failed is None:
            failed = _late(gone, seconds)
        value, error = (None, failed) if failed is not None else outcome(lambda: decide(words))
        if questions:
            self._say(questions, (value, error))
        if error is not None:
            raise error
        return value

    def _hear(self, seconds: float) -> tuple[dict[int, Any], NcclError | None]:
        """The questions of all ranks, or of those that came in time."""
        questions: dict[int, Any] = {}
        missing = list(range(1, self._board.size))

        def look() -> bool | None:
            for rank in list(missing):
                found = self._question(rank)
                if found is not None:
                    questions[rank] = found
                    missing.remove(rank)
            return None if missing else True

        try:
            all_came = not missing or self._board.wait(look, seconds, missing)
        except NcclError as error:
            return questions, error
        return questions, None if all_came else _late(missing, seconds)

    def _question(self, rank: int) -> Any:
        said = self._board.read(_question(rank))
        if not said:
            return None
        question = pickle.loads(said)
        if question[0] == self._heard.get(rank):
            return None
        self._heard[rank] = question[0]
        return question

    def _still_asks(self, rank: int, name: str) -> bool:
        said = self._board.read(_question(rank))
        return bool(said) and pickle.loads(said)[0] == name

    def _say(self, questions: dict[int, Any], value: Any) -> None:
        said = pickle.dumps(value)
        parts = [said[at : at + _PART] for at in range(0, len(said), _PART)] if len(said) > _PART else []
        where = uuid.uuid4().hex
        for place, part in enumerate(parts):
            self._board.write(f"said/{where}/{place}", part)
        for rank, (name, _, _) in questions.items():
            answer = (name, (where, len(parts), len(questions)) if parts else said)
            self._board.write(_answer(rank), pickle.dumps(answer))

    # ---- The others ----

    def _ask(self, about: str, word: Any, seconds: float) -> Any:
        board, name = self._board, uuid.uuid4().hex
        asked_in: str | None = None

        def look() -> Any:
            nonlocal asked_in
            life = board.life()
            if life is None:
                return None
            if life != asked_in:
                board.write(_question(board.rank), pickle.dumps((name, about, word)))
                asked_in = life
            said = board.read(_answer(board.rank))
            answer = (None, None) if said is None else pickle.loads(said)
            return answer[1] if answer[0] == name else None

        try:
            answer = board.wait(look, seconds, [0])
            if answer is None:
                raise _late([0], seconds)
            board.settle()
            value, error = pickle.loads(answer if isinstance(answer, bytes) else self._read(*answer))
            with contextlib.suppress(NcclError):  # the others have theirs, and the next one replaces it
                board.remove(_answer(board.rank))
        finally:
            # Rank 0 may look at it just now, so it is not removed.
            if asked_in is not None:
                with contextlib.suppress(NcclError):
                    board.write(_question(board.rank), b"")
        if error is not None:
            raise error
        return value

    def _read(self, where: str, parts: int, readers: int) -> bytes:
        """The last one that reads it removes it."""
        said = [self._board.read(f"said/{where}/{place}") for place in range(parts)]
        if self._board.add(f"said/{where}", 1) == readers:
            for key in (f"said/{where}", *(f"said/{where}/{place}" for place in range(parts))):
                self._board.remove(key)
        return b"".join(said)


def outcome(make: Callable[[], Any]) -> tuple[Any, Error | None]:
    """What it makes, or its error, for other processes: none may be left waiting."""
    try:
        return make(), None
    except Error as error:
        return None, error
    except torch.OutOfMemoryError as error:
        return None, CudaError(str(error), failure="out_of_memory")
    except Exception as error:
        return None, CompilerError(f"{type(error).__name__}: {error}")


def _late(ranks: Sequence[int], seconds: float) -> NcclError:
    more = f", nor did {len(ranks) - 1} more" if len(ranks) > 1 else ""
    return NcclError(
        f"rank {ranks[0]} did not come within {seconds:g} s{more}",
        ["all ranks of the group must make the same calls"],
        "nccl",
    )


def _question(rank: int) -> str:
    return f"asks/{rank}"


def _answer(rank: int) -> str:
    return f"hears/{rank}"
