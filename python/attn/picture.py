"""Pictures of masks, which `attnc draw` makes."""
from __future__ import annotations

import os
import pathlib
import re
import tempfile
from dataclasses import dataclass, field
from typing import Any, Mapping

from .errors import ArgumentError, CompilerError, Error
from .reference import about_arrays, input_argument
from .specs import Spec, bind_arguments


@dataclass(frozen=True)
class Picture:
    """A mask as SVG. Notebooks show it.

    svg     the text of the .svg file
    facts   what `attnc draw --format json` says: shares, cells, panels (docs/cli.md)"""

    svg: str = field(repr=False)
    facts: dict[str, Any] = field(repr=False)

    @property
    def share(self) -> float:
        """The share of scores that are visible, over the batches and heads that are drawn."""
        panels = self.facts["panels"]
        places = sum(len(panel["places"]) for panel in panels)
        return float(sum(panel["share"] * len(panel["places"]) for panel in panels) / max(places, 1))

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return f"{self.facts['name']}: {100 * self.share:.3g} % of the scores are visible"


def draw(spec: Spec, bindings: Mapping[str, Any], inputs: Mapping[str, Any], captured: Mapping[str, Any],
         path: str | os.PathLike[str] | None, options: Mapping[str, Any]) -> Picture:
    """Draws the mask of a spec. `inputs` are tensors and params that the picture must depend on; those of
    `captured` are used if it does. Writes `path` too, .svg or .png."""
    if path is not None and pathlib.Path(path).suffix not in (".svg", ".png"):
        raise ArgumentError(f"a picture is a file .svg or .png, not {os.fspath(path)}")
    arguments = [*bind_arguments(bindings), *_flags(options)]
    with tempfile.TemporaryDirectory(prefix="attn-") as folder:
        try:
            given = dict(inputs)
            if captured:
                read = spec.answer("draw", *arguments, *_inputs(folder, inputs))["inputs"]
                given = {**{name: value for name, value in captured.items() if name in read}, **given}
            arguments += _inputs(folder, given)
            svg = os.path.join(folder, "picture.svg")
            facts = spec.answer("draw", *arguments, "-o", svg)
            if path is not None:
                spec.answer("draw", *arguments, "-o", os.path.abspath(path))
            return Picture(pathlib.Path(svg).read_text(encoding="utf-8"), facts)
        except (ArgumentError, CompilerError) as error:
            raise _with_arguments(about_arrays(error, folder)) from None


def _with_arguments(error: Error) -> Error:
    """Notes that give sizes as attnc's options give them as arguments."""
    def reworded(note: str) -> str:
        bound = re.findall(r"--bind (\w+=\S+)", note)
        return f"give sizes, as in draw({', '.join(bound)})" if bound else note

    return type(error)(error.message, [reworded(note) for note in error.notes], error.status)


def _flags(options: Mapping[str, Any]) -> list[str]:
    flags = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        flags.append(f"--{name.replace('_', '-')}")
        if value is not True:
            flags.append(",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
    return flags


def _inputs(folder: str, values: Mapping[str, Any]) -> list[str]:
    return [word for name, value in values.items()
            for word in ("--in", input_argument(folder, name, _on_the_host(value)))]


def _on_the_host(value: Any) -> Any:
    """A torch tensor, of any device and with or without a gradient, as one that NumPy reads."""
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    return value.float() if value.dtype.is_floating_point else value
