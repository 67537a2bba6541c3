"""What ranks agree on, through a board."""

from __future__ import annotations

import contextlib
import pickle
import uuid
from collections.abc import Sequence
from typing import Any

from attn.errors import NcclError
from attn.torch.board import Board, question_of

_PART = 4 << 20  # bytes that a store takes at once
_MORE = 2.0  # seconds that the others wait longer than rank 0: it knows best who is missing


class Meetings:
    """Meetings of the ranks of a board, one after the other. Each rank asks rank 0, which hears all before it answers.

    Each question has a name of its own, and so has its answer: so no rank hears the answer to another question,
    such as one that it gave up before. A question says what it is about: if ranks ask about different things, all
    of those that do get an error, and can meet again."""

    def __init__(self, board: Board):
        self._board = board
        self._heard: dict[int, str] = {}  # by rank, the last question that was answered
        self._said: list[str] = []  # keys of answers

    def hold(self, about: str, word: Any, seconds: float, patience: float | None = None) -> list[Any]:
        """The words of all ranks. Raises NcclError if a rank does not come within `seconds`, or asks about something
        else. Others than rank 0 wait for it as long as `patience`, if given."""
        if self._board.size == 1:
            return [word]
        said = pickle.dumps(word)
        if self._board.rank == 0:
            words, error = self._answer(about, said, seconds)
        else:
            words, error = self._ask(about, said, seconds + _MORE if patience is None else patience)
        if error is not None:
            raise error
        return [pickle.loads(each) for each in words]

    def _answer(self, about: str, word: bytes, seconds: float) -> tuple[list[bytes], NcclError | None]:
        asked, error = self._hear(seconds)
        error = error or _out_of_step(about, asked)
        found: dict[bytes, bytes] = {}  # words that are equal are sent once
        words = [found.setdefault(each, each) for each in (word, *(each for _, _, each in asked.values()))]
        answer = ([], error) if error is not None else (words, None)
        self._say(answer, asked)
        return answer

    def _hear(self, seconds: float) -> tuple[dict[int, Any], NcclError | None]:
        """The questions of all ranks, or of those that came in time."""
        board, others = self._board, range(1, self._board.size)
        asked: dict[int, Any] = {}

        def look() -> bool | None:
            """All at once: a rank that has given up meanwhile would not hear what the others do."""
            asked.clear()
            for rank, said in zip(others, board.read([question_of(rank) for rank in others])):
                question = pickle.loads(said) if said else None
                if question is not None and question[0] != self._heard.get(rank):
                    asked[rank] = question
            return len(asked) == len(others) or None

        def missing() -> list[int]:
            return [rank for rank in others if rank not in asked]

        try:
            board.wait(look, seconds, lambda: board.lost(board.states(), missing()))
        except NcclError as error:
            return asked, error
        return asked, _late(missing(), seconds) if missing() else None

    def _say(self, answer: Any, asked: dict[int, Any]) -> None:
        board, said, where = self._board, pickle.dumps(answer), uuid.uuid4().hex
        parts = [said[at : at + _PART] for at in range(0, len(said), _PART)] if asked else []
        keys = [f"said/{where}/{place}" for place in range(len(parts))]
        for key, part in zip(keys, parts):
            board.write(key, part)
        for rank, (name, _, _) in asked.items():
            board.write(f"hears/{name}", pickle.dumps(keys))
            self._heard[rank] = name
        if len(asked) == board.size - 1:  # they have heard what was said before
            for key in self._said:
                board.remove(key)
            self._said = []
        self._said += keys

    def _ask(self, about: str, word: bytes, seconds: float) -> tuple[list[bytes], NcclError | None]:
        board, name, asked_in = self._board, uuid.uuid4().hex, None
        question, answer = question_of(board.rank), f"hears/{name}"

        def look() -> bytes | None:
            nonlocal asked_in
            life = board.find_life()
            if life is None:
                return None
            if life != asked_in:
                board.tell()  # so that it is missed from now on
                board.write(question, pickle.dumps((name, about, word)))
                asked_in = life
            return board.read([answer])[0] if board.has(answer) else None

        try:
            keys = board.wait(look, seconds, lambda: board.lost(board.states(), [0]))
            if keys is None:
                raise _late([0], seconds)
            board.is_answered = True
            said = b"".join(board.read([key])[0] for key in pickle.loads(keys))
            with contextlib.suppress(NcclError):  # it counts even if it cannot be removed
                board.remove(answer)
        finally:
            # Rank 0 may look at it just now, so it is not removed.
            if asked_in is not None:
                with contextlib.suppress(NcclError):
                    board.write(question, b"")
        found: tuple[list[bytes], NcclError | None] = pickle.loads(said)
        return found


def _late(ranks: Sequence[int], seconds: float) -> NcclError:
    more = f", nor did {len(ranks) - 1} more" if len(ranks) > 1 else ""
    return NcclError(
        f"rank {ranks[0]} did not come within {seconds:g} s{more}",
        ["all ranks of the group must make the same calls"],
        "nccl",
    )


def _out_of_step(about: str, asked: dict[int, Any]) -> NcclError | None:
    for rank, (_, other, _) in asked.items():
        if other != about:
            return NcclError(
                f"ranks are not in step: rank 0 asks about {about}, but rank {rank} about {other}",
                ["all ranks of the group must make the same calls; now they can meet again"],
                "nccl",
            )
    return None
