"""What the calls of one attention share, and attentions by the names that operators give them."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import torch

from attn.addressed import addressing_of
from attn.arguments import INPUTS
from attn.attention import Attention
from attn.attention import compile as compile_attention
from attn.facts import CallFacts
from attn.outputs import is_o
from attn.specs import Spec
from attn.torch.launch import Launch
from attn.torch.signature import IN_KERNELS, TORCH_DTYPES
from attn.torch.variant import Pair

_attentions: dict[str, Attention] = {}
_lock = threading.Lock()


class Facts(CallFacts):
    """The same for torch tensors, and what was made for calls of them."""

    def __init__(self, attention: Attention, name: str):
        super().__init__(attention)
        self.name = name  # from which the operators find the attention, in another process too
        self.addressing = addressing_of(self.said)
        # Whether the gradient of each tensor has its type, as autograd wants.
        self.keeps_types = self.quantized is None or (
            self.quantized.o == self.quantized.do and self.quantized.gradients == self.dtype
        )
        self.defaults: dict[torch.device, dict[str, torch.Tensor]] = {}  # of scales
        self.pairs: dict[Any, Pair] = {}  # by what plans.key_of says; each is built once, with `building`
        self.through_lse: dict[Any, Launch] = {}  # backwards that read the gradient of lse, by the same keys
        self.building = threading.Lock()
        self.ways: dict[Any, Any] = {}  # of the operators

    def dtype_of(self, name: str, of_q: torch.dtype) -> torch.dtype:
        """The dtype of an output, of the gradient of an input ("dq") or of `do`, for q, k and v of dtype `of_q`."""
        if is_o(name) or name in ("do", *(f"d{each}" for each in INPUTS)):
            if self.quantized is None:
                return of_q
            types = self.quantized
            return TORCH_DTYPES[{"o": types.o, "do": types.do}.get(name, types.gradients)]
        return torch.float32 if of_q in IN_KERNELS else of_q

    def gradient_dtype(self, name: str, tensor: torch.Tensor) -> torch.dtype:
        """The dtype of the gradient of a tensor that a call was given."""
        return self.dtype_of(f"d{name}", tensor.dtype) if name in INPUTS else tensor.dtype


def prepare(attention: Attention) -> None:
    """Finds what calls need to know, once; programs that are traced only read it."""
    name = json.dumps(
        {
            "spec": attention.source.text,
            "filename": attention.source.filename,
            "bindings": dict(attention.bindings),
            "engine": attention.engine,
        },
        sort_keys=True,
    )
    with _lock:
        attention._torch_facts = Facts(attention, name)
        _attentions.setdefault(name, attention)


def facts_of(attention: Attention) -> Facts:
    """The facts that `prepare` found: when it was compiled, or now if PyTorch was not imported."""
    if attention._torch_facts is None:
        prepare(attention)
    facts: Facts = attention._torch_facts
    return facts


def attention_of(name: str) -> Attention:
    """Raises what `attn.compile` does, if this process has not seen the attention."""
    found = _attentions.get(name)
    if found is None:
        said = json.loads(name)
        filename = said["filename"]
        if filename is not None and not os.path.isdir(os.path.dirname(filename) or "."):
            filename = None  # the program was exported on another machine
        found = compile_attention(Spec(said["spec"], filename), engine=said["engine"], **said["bindings"])
        with _lock:
            found = _attentions.setdefault(name, found)
    return found
