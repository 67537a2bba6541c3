"""Plans for exported programs, which C++ loads beside them."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import torch

from attn import plan as plans
from attn._libattn import PlanFile
from attn.errors import ArgumentError, UnsupportedError
from attn.forms import edits_of, places_in
from attn.torch.calls import Call, formed
from attn.torch.facts import attention_of, facts_of

INDEX = "plans.tsv"


def save_plans(
    program: torch.export.ExportedProgram, folder: str | os.PathLike[str], *, target: str = "native"
) -> int:
    """Compiles the plan of each attention that a program calls, and writes them into a folder for
    `attn::load_plans` of examples/aoti. Returns how many there are.

    The index is the file plans.tsv; a line for each plan has, between tabs, the name of its file, the
    outputs and the params of the attention in their order, and the operator's name of the attention.
    Raises ArgumentError for sizes that are not fixed, and what compiling raises.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lines: dict[str, None] = {}
    for node in program.graph.nodes:
        if node.target is torch.ops.attn.forward.default:
            lines[_save(folder, target, *node.args[:3])] = None
    plans.write(folder / INDEX, "".join(f"{line}\n" for line in lines).encode())
    return len(lines)


def _save(folder: pathlib.Path, target: str, name: str, names: Any, nodes: Any) -> str:
    attention = attention_of(name)
    facts = facts_of(attention)
    tensors = {key: node.meta["val"] for key, node in zip(names, nodes)}
    for key, tensor in tensors.items():
        if not all(isinstance(size, int) for size in (*tensor.shape, *tensor.stride())):
            raise ArgumentError(
                f"{key} has the shape {list(tensor.shape)}, which is not fixed",
                ["export the program without dynamic_shapes"],
            )
    form = formed(Call(attention, tensors, {})).form
    if form is None:
        raise UnsupportedError(f"`{facts.title}` has packed sequences or pages: its plan is not found by shapes")
    contents = attention.build(
        form.sizes._asdict(), edits=edits_of(form), direction="fwd", target=target
    )
    built = PlanFile(contents)
    assert places_in(built, form, built.plans[0].sm) == {"fwd": 0}
    file = f"{built.plans[0].signature}.attnplan"
    plans.write(folder / file, contents)
    return "\t".join((file, ",".join(facts.outputs), ",".join(facts.params), name))
