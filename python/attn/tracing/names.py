"""Names of captured tensors, lets and attentions: valid in the language, and each used once."""
from __future__ import annotations

import re

from attn.tracing.words import FUNCTIONS

_RESERVED = frozenset(
    "score b h q_idx kv_idx q_raw inf B Hq Hkv Sq Skv D Dqk Dv "
    "q k v o lse max sum_exp max_with_sink sum_exp_with_sink lse_without_sink do dq dk dv "
    "lengths_q lengths_kv seed offset page_table page_table_k page_table_v cu_seqlens_q cu_seqlens_kv kv qkv "
    "true false True False in torch math nan return fn let import attention tensor learn param".split()
) | frozenset(FUNCTIONS)


def identifier(text: str, fallback: str) -> str:
    """`text` with other characters replaced: "<lambda>" -> `fallback`."""
    cleaned = re.sub(r"[^0-9A-Za-z_]+", "_", text).strip("_")
    if not cleaned or cleaned == "lambda":
        return fallback
    return f"{fallback}_{cleaned}" if cleaned[0].isdigit() else cleaned


class Names:
    """Gives out names. A taken or reserved one gets a suffix."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, wish: str, fallback: str) -> str:
        """A name like `wish` that is no other name of the spec and no word of the language; like `fallback` if
        `wish` has no letter."""
        name = identifier(wish, fallback)
        if name in _RESERVED or re.fullmatch(r"i\d+", name):
            name += "_"
        stem, number = name.rstrip("_") if name in self._taken else name, 2
        while self._clashes(name):
            name, number = f"{stem}_{number}", number + 1
        self._taken.add(name)
        return name

    def _clashes(self, name: str) -> bool:
        """d_NAME is the gradient of a learned NAME."""
        return name in self._taken or f"d_{name}" in self._taken or name.removeprefix("d_") in self._taken
