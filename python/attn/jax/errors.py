"""Errors of programs that run, of which JAX keeps only the text."""

from __future__ import annotations

import re

from attn.errors import Error, error_of as error_of_status

_MARK = re.compile(r"\[attn (\w+)\] (.*)", re.DOTALL)
_NOTE = "\n  note: "


def error_of(error: BaseException) -> Error | None:
    """The error of attn that an error of a running program was made of, such as BindingError for page tables that lead
    out of the pool, and CudaError: JAX raises its own type, with the text. None for other errors."""
    found = _MARK.search(str(error))
    if found is None:
        return None
    message, *notes = found[2].split(_NOTE)
    return error_of_status(found[1], message, notes)
