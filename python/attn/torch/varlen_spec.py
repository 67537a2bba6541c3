"""The specs of attention over a paged cache, and their kernels: one for each key, compiled once."""

from __future__ import annotations

import threading
from typing import NamedTuple

from attn import _libattn
from attn.attention import compile as compile_attention
from attn.errors import BindingError
from attn.torch.statistics import is_capturing

_LEAST_SEQUENCES, _LEAST_KEYS = 8, 1024  # fewer have a plan of as many
_MOST_SEQUENCES = 4096  # that a schedule has
_TARGET = "native"


class Key(NamedTuple):
    """What decides a plan. `sequences`, `rows` of each and `keys` of each are the most that it serves.

    `scale`: None: 1 / sqrt(depth). `left`, `right`: whether there is a bound, whose value is a param; `causal`: a
    right bound of 0, which a single row needs not. `softcap`: 0: none. `sinks`: their type, or "". `slopes`: "heads"
    if each head has one, "sequences" if each head of each sequence has, else "". `lse`: whether it is an output."""

    sequences: int
    rows: int
    keys: int
    heads: int
    heads_kv: int
    depth: int
    depth_v: int
    dtype: str
    page: int
    scale: float | None
    causal: bool
    left: bool
    right: bool
    softcap: float
    sinks: str
    slopes: str
    lse: bool

    @property
    def least_sequences(self) -> int:
        """Calls with fewer have another key, if they have no schedule."""
        return 0 if self.sequences == _LEAST_SEQUENCES else self.sequences // 2 + 1

    @property
    def columns(self) -> int:
        """Pages of a sequence."""
        return -(-self.keys // self.page)


def sequences_for(count: int) -> int:
    """The sequences of the plan for so many. Raises BindingError if there is none."""
    if count > _MOST_SEQUENCES:
        raise BindingError(f"{count} sequences are more than {_MOST_SEQUENCES}, the most that a schedule has",
                           ["give them to several calls"])
    return max(_LEAST_SEQUENCES, power_of_two(count))


def keys_for(count: int, columns: int, page: int) -> int:
    """The keys of each sequence of the plan for so many, of which page tables have `columns` pages."""
    return min(max(_LEAST_KEYS, power_of_two(count)), columns * page)


def power_of_two(count: int) -> int:
    """The least that is at least so much, and 1."""
    return 1 << max(count - 1, 0).bit_length()


def spec_of(key: Key) -> str:
    """The text of the spec, with all sizes."""
    clauses = [
        f"dims B = {key.sequences}, Hq = {key.heads}, Hkv = {key.heads_kv}, Sq = {key.rows}, Skv = {key.keys},"
        f" Dqk = {key.depth}, Dv = {key.depth_v}",
        f"dtype {key.dtype}",
        "layout q: thd(strides = bound), o: thd(strides = bound),"
        f" k: paged(page = {key.page}, strides = bound), v: paged(page = {key.page}, strides = bound)",
        "align bottom_right",
        "lengths q, kv",
        *_inputs(key),
        *_scores(key),
        *_masks(key),
        *(["sink sinks[h]"] if key.sinks else []),
        f"outputs o{', lse' if key.lse else ''}",
    ]
    return "attention varlen {\n" + "".join(f"  {clause};\n" for clause in clauses) + "}\n"


def _inputs(key: Key) -> list[str]:
    made = []
    if key.sinks:
        made.append(f"tensor sinks: {key.sinks}[Hq]")
    if key.slopes:
        made.append(f"tensor slopes: f32[{'Hq' if key.slopes == 'heads' else 'B, Hq'}]")
    return made + [f"param {name}: i32" for name in params_of(key)]


def _scores(key: Key) -> list[str]:
    made = []
    if key.scale is not None:
        made.append(f"scale {key.scale!r}")
    if key.softcap:
        made.append(f"score {key.softcap!r} * tanh(score / {key.softcap!r})")
    if key.slopes:
        slope = "slopes[h]" if key.slopes == "heads" else "slopes[b, h]"
        # Keys that a causal row sees, and those of a single row, are none of the future.
        distance = "q_idx - kv_idx" if key.causal or key.rows == 1 else "abs(q_idx - kv_idx)"
        made.append(f"score score - {slope} * ({distance})")
    return made


def _masks(key: Key) -> list[str]:
    made = []
    if key.causal:
        made.append("mask q_idx >= kv_idx")
    if key.left:
        made.append("mask q_idx - kv_idx <= left")
    if key.right:
        made.append("mask kv_idx - q_idx <= right")
    return made


def params_of(key: Key) -> tuple[str, ...]:
    """The params of the spec, all i32."""
    return tuple(name for name in ("left", "right") if getattr(key, name))


_executables: dict[tuple[Key, int], _libattn.Executable] = {}
_compiling = threading.Lock()


def executable_of(key: Key, device: int) -> _libattn.Executable:
    """The loaded plan of a key on a CUDA device, compiled first if there is none. Others wait meanwhile.

    Raises UnsupportedError if there are no kernels for the key on the device, BindingError while a graph is captured."""
    found = _executables.get((key, device))
    if found is not None:
        return found
    if is_capturing():
        raise BindingError(
            "this attention has no plan yet, which cannot be compiled while a CUDA graph is captured",
            ["call it once before the capture, or make an attn.torch.Schedule, which compiles it"],
        )
    with _compiling:
        found = _executables.get((key, device))
        if found is None:
            found = _executables[key, device] = _load(key, device)
    return found


def _load(key: Key, device: int) -> _libattn.Executable:
    contents = compile_attention(spec_of(key), engine="native").build(direction="fwd", target=_TARGET)
    return _libattn.Executable(_libattn.runtime(device), _libattn.PlanFile(contents), 0)
