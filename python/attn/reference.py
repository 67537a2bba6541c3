"""The dense reference: attentions of any spec on the CPU, in double precision."""
from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from .arguments import INPUTS, Sizes, order_note
from .errors import Error, ArgumentError, BindingError, CompilerError, UnsupportedError
from .outputs import (
    NO_KEY_BUT_A_SINK, NO_KEY_BUT_AN_EPILOGUE, NO_KEY_NOTES, is_amax, is_o, is_statistic, value_of_nothing,
)
from .specs import Spec, bind_arguments

if TYPE_CHECKING:
    import numpy as np

_HOST_DEVICES = (1, 3)  # DLPack: the CPU, and memory of the CPU that a GPU may read


def reference(spec: Spec, bind: Mapping[str, Any], inputs: Mapping[str, Any], outputs: Sequence[str],
              gradients: Mapping[str, Any] | None = None, unrounded: bool = False,
              dtype: str | None = None, held: bool = False) -> dict[str, np.ndarray]:
    """Computes outputs and gradients of an attention.

    `bind` are sizes and spec parameters. `inputs` are arrays by name, in logical order whatever the layout
    is: q [B,Hq,Sq,Dqk], k [B,Hkv,Skv,Dqk], v [B,Hkv,Skv,Dv], captured tensors as declared; and numbers for
    params. `outputs` are names such as "o" and "lse", also those that the spec does not list. `gradients`
    is None or {"do": array like o, "of": names of inputs}: gradients of the sum of o times do; with "dlse", an
    array like lse, plus the sum of lse times dlse; with "amax", names of the outputs of an 8-bit backward, those
    too. `held`: the spec makes v the first columns of k, as `inputs` have it too.

    Returns arrays by name: outputs, and each gradient by the name of its input. They are f32, rounded as
    kernels of `dtype`, by default the spec's, round inputs and outputs; with `unrounded`, f64 without any
    rounding. Every score is computed, in memory: for small sizes. Raises BindingError for arrays that do not
    fit, SpecError."""
    import numpy as np

    wanted = tuple(gradients["of"]) if gradients is not None else ()
    values = {name: value for name, value in inputs.items() if not (held and name == "v")}
    through = []
    if gradients is not None:
        values["do"] = gradients["do"]
        if gradients.get("dlse") is not None:
            values["dlse"], through = gradients["dlse"], ["lse"]
    if _sees_nothing(inputs):
        parameters = {name: value for name, value in bind.items() if name not in Sizes._fields}
        facts = spec.described(parameters).facts
        return _of_nothing(facts, inputs, outputs, wanted, np.float64 if unrounded else np.float32)
    files = {name: name for name in outputs}
    files.update({name: _gradient(name) for name in wanted})
    files.update({name: name for name in (gradients or {}).get("amax", ())})
    with tempfile.TemporaryDirectory(prefix="attn-") as folder:
        arguments = ["--backend", "reference", "--yes", *bind_arguments(bind)]  # also if it takes hours
        edits = {"--outputs": outputs, "--gradients": [*wanted, *through], "--dtype": [dtype] if dtype else []}
        for option, names in edits.items():
            arguments += [option, ",".join(names)] if names else []
        if gradients is not None:
            arguments += ["--direction", "both" if outputs else "bwd"]
        if unrounded:
            arguments.append("--unrounded")
        for name, value in values.items():
            arguments += ["--in", input_argument(folder, name, value)]
        for name in files.values():
            arguments += ["--out", f"{name}={folder}/out_{name}.npy"]
        try:
            spec.answer("run", *arguments)
        except (ArgumentError, CompilerError) as error:
            raise about_arrays(error, folder, spec, bind) from None
        return {name: np.load(os.path.join(folder, f"out_{file}.npy")) for name, file in files.items()}


def _sees_nothing(inputs: Mapping[str, Any]) -> bool:
    """Whether there is no batch, no row or no key."""
    return any(0 in inputs[name].shape[:3] for name in INPUTS)


def _of_nothing(facts: Mapping[str, Any], inputs: Mapping[str, Any], outputs: Sequence[str], gradients: Sequence[str],
                dtype: Any) -> dict[str, np.ndarray]:
    import numpy as np

    q, v = inputs["q"], inputs["v"]
    rows = q.shape[:3]
    if facts["epilogue"] and 0 not in rows and any(map(is_o, outputs)):
        raise UnsupportedError(NO_KEY_BUT_AN_EPILOGUE, NO_KEY_NOTES)
    if facts["sink"] and 0 not in rows and any(map(is_statistic, outputs)):
        raise UnsupportedError(NO_KEY_BUT_A_SINK, NO_KEY_NOTES)
    shapes = {name: (1,) if is_amax(name) else rows for name in outputs}
    shapes.update({name: (*rows, v.shape[3]) for name in filter(is_o, outputs)})
    made = {name: np.full(shape, value_of_nothing(name), dtype) for name, shape in shapes.items()}
    return {**made, **{name: np.zeros(inputs[name].shape, dtype) for name in gradients}}


def as_array(name: str, value: Any) -> np.ndarray:
    """A NumPy array of an array, a sequence of numbers, or anything with DLPack in the CPU's memory: of this
    machine's byte order, and with signed integers in place of unsigned ones of more than 8 bits.

    Raises BindingError if it is not one, is on a GPU, or has elements that no type of attnc holds."""
    import numpy as np

    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack_device__"):
        if value.__dlpack_device__()[0] not in _HOST_DEVICES:
            raise BindingError(f"{name} is in the memory of a GPU; of arrays there, only torch tensors "
                               "can be given", ["torch.from_dlpack makes a tensor of it without a copy"])
        try:
            value = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError) as error:
            raise BindingError(f"{name} cannot be read as a NumPy array: {error}",
                               ["convert it to float32 first"]) from error
    array = np.asarray(value)
    if array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):  # of ml_dtypes
        array = array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise BindingError(f"{name} has dtype {array.dtype}; it must be of floats, integers or booleans")
    if array.dtype.itemsize > 8:
        raise BindingError(f"{name} has dtype {array.dtype}, which has more than 64 bits",
                           [f"round it: {name}.astype(\"float64\")"])
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        return _signed(name, array)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _signed(name: str, array: np.ndarray) -> np.ndarray:
    import numpy as np

    if array.dtype.itemsize == 8 and array.size > 0 and array.max() > np.iinfo(np.int64).max:
        raise BindingError(f"{name} has the element {array.max()}, which does not fit in 64 bits with a sign")
    return array.astype(np.int32 if array.dtype.itemsize == 2 else np.int64)


def _gradient(name: str) -> str:
    return f"d{name}" if name in ("q", "k", "v") else f"d_{name}"


def input_argument(folder: str, name: str, value: Any) -> str:
    """The value of attnc's option --in for a number or an array, which a file in `folder` takes."""
    if isinstance(value, (bool, int, float)):
        return f"{name}={float(value)!r}" if isinstance(value, float) else f"{name}={int(value)}"
    import numpy as np

    path = os.path.join(folder, f"in_{name}.npy")
    np.save(path, np.ascontiguousarray(as_array(name, value)).reshape(np.shape(value)))
    return f"{name}=@{path}"


def about_arrays(error: ArgumentError | CompilerError, folder: str, spec: Spec | None = None,
                 sizes: Mapping[str, Any] | None = None) -> Error:
    """The error in terms of arrays instead of files and of attnc's options; of a traced spec, with the line of
    Python. `sizes`: those that were read from q, k and v."""
    def reworded(text: str) -> str:
        text = text.replace("--in ", "").replace(f"@{folder}/", "").replace("the file ", "the array ")
        for name in os.listdir(folder):
            text = text.replace(f"{name.removeprefix('in_').removesuffix('.npy')}={name}",
                                name.removeprefix("in_").removesuffix(".npy"))
        return text.replace("files hold", "arrays are")

    message, notes = reworded(error.message), [reworded(note) for note in error.notes]
    if sizes is not None and " dims " in message:
        found = ", ".join(f"{dim} = {sizes[dim]}" for dim in Sizes._fields if dim in sizes)
        notes.append(f"by q, k and v, {found}; {order_note('bhsd')}")
    if spec is not None and spec.origins:
        from .tracing.origins import notes_of_value

        notes = [*notes_of_value(message, spec.origins), *notes]
    kind = BindingError if isinstance(error, ArgumentError) else CompilerError
    return kind(message, notes, error.status)
