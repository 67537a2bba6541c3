"""Compiled attentions: `compile`, `load`, and what they return."""
from __future__ import annotations

import builtins
import copy
import functools
import os
import pathlib
import sys
import tempfile
import threading
import warnings
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from . import _attnc, _find, hints, layouts, plan as plans
from ._libattn import PlanFile, PlanInfo
from .arguments import INPUTS, check_names, first_columns, named, number, sizes_of, width_of_values
from .errors import ArgumentError, PlanError, UnsupportedError
from .outputs import is_o
from .specs import Description, Spec
from .tracing.recipes import Captured
from .types import Mod, Outputs

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from .picture import Picture
    from .torch.buckets import Bucketed

# attn.torch builds on this module: it says here that it was imported, and `attn` how it is.
torch_calls: Any = None
import_torch: Callable[[], Any]
# attn.jax likewise.
jax_calls: Any = None
import_jax: Callable[[], Any]


def _of_torch() -> Any:
    return import_torch() if torch_calls is None else torch_calls


def _of_jax() -> Any:
    return import_jax() if jax_calls is None else jax_calls


class Attention:
    """A spec with sizes and parameters, and the contents of a plan file if it was compiled. Calls compute
    it. Immutable, and for any number of threads at once.

    source    the Spec, with what it imports written into it
    bindings  sizes and spec parameters that replace the spec's
    captured  tensors that a traced function captured, by name: inputs of every call that does not give
              others
    target    the GPU that plans are for, or None
    engine    the engine that plans must be of, or None
    builds    whether a torch call for which there is no plan compiles one; else it raises UnsupportedError
    layout    the order of the dimensions of q, k, v and o in calls: "bhsd", "bshd", or None: "bhsd", and calls
              are refused whose tensors fit the spec only as [B, S, H, D]"""

    def __init__(self, source: Spec, bindings: Mapping[str, object], contents: bytes | None = None, *,
                 target: str | None = None, engine: str | None = None, cache: bool = True,
                 captured: Mapping[str, object] | None = None, builds: bool = True, layout: str | None = None,
                 later: Callable[[], bytes | None] | None = None):
        self.source = source.standing_alone()
        self.bindings = dict(bindings)
        self.captured = captured if isinstance(captured, Captured) else dict(captured or {})
        self._computed = captured.computed if isinstance(captured, Captured) else ()
        self.target = target
        self.engine = engine
        self.builds = builds
        self.layout = layout
        self._cache = cache
        self._contents = contents
        self._later = later  # gives the contents when somebody asks for them
        self._lock = threading.Lock()
        self._torch_facts: Any = None
        self._jax_facts: Any = None
        self._recent: Any = None  # a short way for torch calls like the last one
        if "torch" in sys.modules:  # programs that torch.compile traces only read what this finds
            _of_torch().prepare(self)

    def __getstate__(self) -> dict[str, Any]:
        """What pickle keeps: the spec, sizes, plans and captured tensors."""
        dropped = ("_lock", "_torch_facts", "_jax_facts", "_recent", "described")
        return {name: value for name, value in self.__dict__.items() if name not in dropped}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock, self._recent = threading.Lock(), None
        self._torch_facts, self._jax_facts = None, None
        if "torch" in sys.modules:
            _of_torch().prepare(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Attention:
        """The same attention, of the same loaded plans, with copies of the captured tensors: those of the module that
        is copied, if it has them."""
        made = memo[id(self)] = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._lock, made._recent, made._jax_facts = threading.Lock(), None, None
        made.captured = copy.deepcopy(self.captured, memo)
        return made

    @property
    def spec(self) -> str:
        """The text of the spec, which a file can keep."""
        return self.source.dsl

    @property
    def name(self) -> str:
        """The name that the spec gives the attention."""
        return self.described.name

    @functools.cached_property
    def described(self) -> Description:
        """What the compiler says of the spec with the bindings. Do not change it."""
        return self.source.described(self.bindings)

    @property
    def bytes(self) -> bytes | None:
        """The contents of a plan file, or None if there is no plan. If `compile` was not told a target, the plan
        for the local GPU and the spec's sizes is compiled when it is first asked for; calls have their own."""
        with self._lock:
            if self._later is not None:
                self._contents = self._later()
                self._later = None
            return self._contents

    @property
    def plans(self) -> tuple[PlanInfo, ...]:
        """The plans in `bytes`."""
        contents = self.bytes
        return PlanFile(contents).plans if contents else ()

    @property
    def sizes(self) -> dict[str, int | None]:
        """The size of each dimension: those of the first plan, if it was compiled, else the spec's, None for open
        ones."""
        if self._contents is not None:
            return dict(self.plans[0].sizes)
        return dict(self.described.sizes)

    @property
    def scales(self) -> dict[str, float | None]:
        """The scales that calls of 8-bit attention take, with the spec's defaults (None: it depends on
        sizes, and must be given); empty for other attentions."""
        return dict(self.described.scales)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{dim}={size}" for dim, size in self.sizes.items() if size is not None)
        count = len(self.plans) if self._contents is not None else 0
        kind = f"{count} plan{'s' * (count > 1)} for {self.plans[0].target}" if count else "no plan"
        return f"<attn.Attention {self.name}({sizes}): {kind}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan file, which `attn.load`, attnc and the C API read. Raises ArgumentError if no
        plan was compiled, CompilerError if the file cannot be written."""
        contents = self.bytes
        if contents is None:
            raise ArgumentError(f"`{self.name}` has no plan to save",
                                ["compile it for a GPU: attn.compile(.., target=\"h200\"); attn.targets() "
                                 "lists all, and none of them needs to be here"])
        plans.write(path, contents)

    def build(self, sizes: Mapping[str, object] | None = None, *, edits: Sequence[str] = (),
              direction: str | None = None, target: str | None = None) -> builtins.bytes:
        """Compiles a plan with other sizes, or other clauses (`edits`: options of attnc compile, such as "--dtype",
        "f16"), and returns the contents of its plan file. What is not given is as in this attention; the target
        is the local GPU then, if there was none. Raises what `attn.compile` does."""
        bindings = dict(self.bindings)
        if sizes:
            bindings.pop("D", None)
            bindings.update(sizes)
        return plans.build(self.source, bindings, target or self.target or "native", engine=self.engine,
                           direction=direction, cache=self._cache, edits=edits)

    def warm(self, *, training: bool = False, dtype: str | torch.dtype | None = None, layout: str = "bhsd",
             device: torch.device | str | int | None = None, background: bool = False, **sizes: int) -> Future[None]:
        """Compiles and loads the plan of torch calls with these sizes, so that they need not wait.

        `training`: for tensors that require a gradient. `layout`: "bhsd" or "bshd", the order of q, k and v
        in memory, whatever their shape; `dtype`: "bf16" or "f16", or torch's, by default the spec's; `device`: by
        default the current CUDA device. With `background` it returns at once; calls of these sizes then wait for
        this build. Returns a finished or running Future; without `background`, raises what the build does.
        Raises BindingError if a size is not known."""
        run = _of_torch().warming(self, sizes, training=training, dtype=dtype, layout=layout, device=device)
        future: Future[None] = Future()
        if background:
            threading.Thread(target=_settle, args=(future, run), daemon=True).start()
        else:
            run()
            future.set_result(None)
        return future

    def bucketed(self, *lengths: int, Sq: Sequence[int] | None = None,
                 Skv: Sequence[int] | None = None) -> Bucketed:
        """The same attention of torch tensors of any length, with a plan for each of a few lengths only:
        q, k, v and captured tensors are padded to the next of `lengths`, and lengths hide what was added.
        `Sq` and `Skv` are lengths of the one or the other.

        Raises ArgumentError if the spec reads Sq or Skv other than as the sizes of tensors."""
        buckets = {"Sq": lengths if Sq is None else Sq, "Skv": lengths if Skv is None else Skv}
        found: Bucketed = _of_torch().bucketed(self, buckets)
        return found

    def explain(self, target: str | None = None) -> str:
        """What attnc says about the attention: graph nodes, mask, work and engine. Of the plans if there
        are any and no target is given, else as it would be compiled for the target (without one, for the
        local GPU or an H200)."""
        if self._contents is not None and target is None:
            with tempfile.TemporaryDirectory(prefix="attn-") as folder:
                path = pathlib.Path(folder) / f"{self.name}.attnplan"
                path.write_bytes(self._contents)
                return _attnc.run_text(["explain", str(path)])
        plans.check_sizes(self.described, "an explanation")
        options = ["--target", target] if target else []
        return self.source.print("explain", self.bindings, *options)

    def draw(self, path: str | os.PathLike[str] | None = None, *, b: int | None = None,
             h: int | None = None, blocks: tuple[int, int] | None = None, score: bool = False,
             score_at: float | None = None, parts: bool = False, theme: str | None = None,
             **inputs_and_sizes: object) -> Picture:
        """Draws the mask, exactly or by blocks, as `attnc draw` does; notebooks show what is returned.

        `path`: a file .svg or .png to write too. `b`, `h`: one batch or head, instead of all that differ.
        `blocks`: rows and columns of a block. `score`: colour by how the score changes, from `score_at` (1);
        `parts`: by what computes it. `theme`: "light" or "dark". Other arguments are captured tensors and
        params by name, which are made up if they are not given, and sizes and parameters of the spec.
        Raises ArgumentError, BindingError, SpecError."""
        from .picture import draw

        inputs: dict[str, Any] = {}
        sizes = dict(self.bindings)
        names = {*self.described.params, *self.described.inputs}
        for name, value in inputs_and_sizes.items():
            (inputs if name in names else sizes)[name] = value
        self.source.described(sizes)
        options = {"b": b, "h": h, "blocks": blocks, "score": score, "score_at": score_at, "parts": parts,
                   "theme": theme}
        return draw(self.source, sizes, inputs, self.captured, path, options)

    def __call__(self, *args: object, layout: str | None = None, **kwargs: object) -> Outputs:
        """Computes the attention of q [B,Hq,Sq,Dqk], k [B,Hkv,Skv,Dqk], v [B,Hkv,Skv,Dv], in this order or
        by name; captured tensors, lengths and params by name. Sizes are those of the tensors. With
        `layout="bshd"`, here or in `attn.compile`, q is [B,Sq,Hq,Dqk], k [B,Skv,Hkv,Dqk], v [B,Skv,Hkv,Dv] and
        o [B,Sq,Hq,Dv].

        torch tensors: see `attn.torch.call`. JAX's arrays: see `attn.jax.call`. NumPy arrays, and what has DLPack in the CPU's memory: the
        dense reference computes, in double precision; arrays of float16 are first rounded to the spec's
        dtype, and for 8-bit attention all but those of float64. The scales of 8-bit attention are inputs
        too. Returns o, or a tuple of the outputs in the order of the spec's clause; o has q's dtype.
        Raises BindingError for what does not fit, also where the heads of q and k contradict the spec."""
        if self._computed:
            missing = [name for name in self._computed if name not in kwargs]
            kwargs = {**{name: self.captured[name] for name in missing}, **kwargs}
        if _has_jax_array(args, kwargs):
            return _of_jax().call(self, *args, layout=layout, **kwargs)
        layout = layout or self.layout
        if layout is not None and layouts.checked(layout) != "bhsd":
            return layouts.call(self, self.described, args, kwargs)
        torch = sys.modules.get("torch")
        if torch is not None and not torch.compiler.is_compiling() and self._recent is not None:
            result = self._recent.call(args, kwargs)
            if result is not None:
                return result
        if _has_torch_tensor(args, kwargs):
            return _of_torch().call(self, *args, layout=layout, **kwargs)
        return self._outputs(self._inputs(args, kwargs, layout))

    def gradients(self, *args: object, do: object, dlse: object = None, layout: str | None = None,
                  **kwargs: object) -> dict[str, NDArray[np.floating]]:
        """Gradients of the sum of o times `do` [B,Hq,Sq,Dv], and with `dlse` [B,Hq,Sq] of lse times `dlse` too, by
        the names of inputs: those that the spec's `grad` lists, else q, k, v and every learned tensor. The
        arguments are those of a call with NumPy arrays; torch has autograd. f32, or f64 if q is."""
        from .reference import as_array, reference

        said = self.described
        if said.held or said.gathers or said.cache:
            what = ("keys and values of 8 bits" if said.cache else "values that are a part of k" if said.held
                    else "gathered keys")
            raise UnsupportedError(f"`{said.name}` has no gradients: it has {what}",
                                   ["train with k and v of their own, in 16 bits, and a `mask` for what rows see"])
        layout, do = layout or self.layout, as_array("do", do)
        dlse = None if dlse is None else as_array("dlse", dlse)
        if layout is not None and layouts.checked(layout) != "bhsd":
            return layouts.gradients(self, args, do, dlse, kwargs)
        inputs = self._inputs(args, kwargs, layout)
        found = reference(self.source, self._sizes_of(inputs), inputs, (),
                          {"do": do, "dlse": dlse, "of": self.described.gradients},
                          unrounded=self._is_exact(inputs["q"]))
        return {name: _as_float(value, inputs["q"]) for name, value in found.items()}

    def _outputs(self, inputs: dict[str, Any]) -> Any:
        from .reference import reference

        q = inputs["q"]
        names = self.described.outputs
        found = reference(self.source, self._sizes_of(inputs), inputs, names, unrounded=self._is_exact(q),
                          held=self.described.held)
        outputs = tuple(found[name].astype(q.dtype) if is_o(name) and q.dtype.kind == "f"
                        else _as_float(found[name], q) for name in names)
        return outputs[0] if len(outputs) == 1 else outputs

    def _inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], layout: str | None) -> dict[str, Any]:
        from .reference import as_array

        said = self.described
        given = named(self.captured, args, kwargs)
        width = width_of_values(said.name, said.sizes, given) if said.held else None
        wanted = [*(INPUTS if width is None else INPUTS[:2]), *(name for name, one in said.inputs.items() if not one.optional), *said.params]
        check_names(said.name, given, wanted, [name for name, one in said.inputs.items() if one.optional])
        inputs = {name: number(name, value) if name in said.params else as_array(name, value)
                  for name, value in given.items()}
        if width is not None:
            inputs["v"] = first_columns(inputs["k"], width)
        layouts.check(said, sizes_of(*(inputs[name] for name in INPUTS)), layout)
        return inputs

    def _is_exact(self, q: Any) -> bool:
        """Whether inputs are of more precision than kernels have, so that nothing is rounded."""
        if q.dtype.name == "float64":
            return True
        return q.dtype.name != "float16" and self.described.quantized is None and not self.described.cache

    def _sizes_of(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        sizes = sizes_of(*(inputs[name] for name in INPUTS))._asdict()
        return {**{name: value for name, value in self.bindings.items() if name != "D"}, **sizes}


def compile(spec: object = None, *, score_mod: Mod | None = None, mask_mod: Mod | None = None,
            target: str | None = None,
            engine: str | None = None, direction: str | None = None, cache: bool = True,
            deny_warnings: bool = False, builds: bool = True, layout: str | None = None,
            **sizes_and_parameters: object) -> Attention:
    """Compiles an attention.

    `spec`: whatever `Spec.of` takes: a path, the text, the JSON form, or the name of a standard spec. Or
    `score_mod` and `mask_mod`: FlexAttention's functions, traced (`attn.trace`) with the sizes B, Hq, Sq and
    D (Hkv and Skv equal Hq and Sq if they are not given), and the tracer's dtype, scale, outputs, learn,
    dropout, name, deterministic and facts (False here: calls may give other elements than those captured).
    `target`: the GPU to compile for, one of `attn.targets()`, which need not be here. None: plans are compiled
    when they are needed, for the local one: by calls, each for its own sizes, and by `bytes`, `plans` and `save`,
    if all sizes are known.
    `engine`: "auto", "cudnn", "native" or "unfused". `direction`: "fwd", "bwd" or "both".
    `cache`: whether plans are looked up and kept in the folder that `attnc cache path` prints.
    `builds`: False for calls of torch tensors that never wait for a compiler: those for which there is no
    plan yet, from here or from `warm`, raise UnsupportedError.
    `layout`: the order of the dimensions of q, k, v and o in calls: "bhsd", as without it, or "bshd". That of
    traced functions' plans in memory is the same; a spec has a clause for that.
    Other arguments are sizes and parameters of the spec that replace its own: Sq=4096, window=64. A list of
    sizes gives a plan for each.

    Raises SpecError (with `deny_warnings` also for warnings), TraceError, UnsupportedError, ArgumentError."""
    captured: Mapping[str, Any] = {}
    bindings = sizes_and_parameters
    if score_mod is not None or mask_mod is not None:
        if spec is not None:
            raise ArgumentError("a spec and mods were both given", ["give one of them"])
        order = {} if layouts.checked(layout) is None else {"layout": layout}
        # Calls may give other elements than those that were captured, so facts are nothing to rely on.
        options = {"facts": False, **order, **sizes_and_parameters}
        source, captured = _traced(score_mod, mask_mod, options)
        bindings = {}
    elif spec is None:
        raise ArgumentError("nothing to compile was given",
                            ["give a spec, or score_mod, mask_mod or both"])
    else:
        source = Spec.of(spec)
    plans.check_choices(engine, direction)
    layouts.checked(layout)
    # Compiling issues the same warnings.
    said = source.check(bindings, deny_warnings) if target is None else source.described(bindings)

    build = functools.partial(plans.build, source, bindings, engine=engine, direction=direction, cache=cache,
                              deny_warnings=deny_warnings)
    local = functools.partial(_built_here, build, not said.open)
    contents = None
    if target is not None:
        plans.check_sizes(said, f"a plan for {target}")
        contents = build(target=target)
    elif not builds:
        contents = local()
    return Attention(source, bindings, contents, target=target, engine=engine, cache=cache,
                     captured=captured, builds=builds, layout=layout,
                     later=local if target is None and builds else None)


def _built_here(build: Callable[..., bytes], is_closed: bool) -> bytes | None:
    """The plan for the local GPU, if there is one and all sizes are known."""
    return build(target="native") if is_closed and plans.local_gpu() is not None else None


def load(path: str | os.PathLike[str], *, recompile: bool = False) -> Attention:
    """Loads a plan file that `Attention.save`, attnc or the C API's picker wrote. **A plan is code: load
    only plans you trust.**

    `recompile`: if its plans are for another GPU than the local one, or another cuDNN than is found here,
    compile them again, with a warning that names both; and plans that are missing are compiled by the torch
    call that needs them, instead of raising UnsupportedError. Raises CompilerError if the file cannot be read,
    PlanError if it is damaged or no plan file."""
    contents = plans.read(path)
    if recompile:
        contents = _for_this_machine(os.fspath(path), contents)
    try:
        found = PlanFile(contents).plans
    except PlanError as error:
        notes = error.notes
        if os.fspath(path).endswith((".attn", ".attn.json")):
            notes = (*notes, "this is the name of a spec: attn.compile compiles it")
        raise type(error)(f"{os.fspath(path)}: {error.message}", notes, error.status) from None
    return Attention(Spec(found[0].spec), _bindings_of(contents), contents, target=found[0].target,
                     builds=recompile)


def _bindings_of(contents: bytes) -> dict[str, Any]:
    """The sizes and parameters that the first plan was compiled with, which only its manifest says."""
    with tempfile.TemporaryDirectory(prefix="attn-") as folder:
        path = pathlib.Path(folder) / "plan.attnplan"
        path.write_bytes(contents)
        answer = _attnc.run(["inspect", str(path)])
    manifest = answer["plans"][0]["manifest"] if "plans" in answer else answer
    return {one["name"]: plans.number(one["value"]) for one in manifest["bindings"]}


def _traced(score_mod: Mod | None, mask_mod: Mod | None,
            options: Mapping[str, Any]) -> tuple[Spec, Mapping[str, Any]]:
    from .trace import OPTIONS, trace

    sizes = dict(options)
    if "D" in sizes:
        sizes["Dqk"] = sizes.pop("D")
    for dim, like in (("Hkv", "Hq"), ("Skv", "Sq"), ("Dv", "Dqk")):
        if dim not in sizes and like in sizes:
            sizes[dim] = sizes[like]
    missing = [dim for dim in ("B", "Hq", "Sq", "Dqk") if dim not in sizes]
    if missing:
        names = ", ".join("D" if dim == "Dqk" else dim for dim in missing)
        raise ArgumentError(f"functions are traced for given sizes, and {names} are missing",
                            ["attn.compile(score_mod=f, B=2, Hq=8, Sq=1024, D=64)"])
    for name in sizes:
        if name not in OPTIONS:
            raise ArgumentError(f"`{name}` is no size, and no option of a trace",
                                [*hints.of_argument(name), f"they are {', '.join(OPTIONS)}"])
    traced = trace(score_mod, mask_mod, **sizes)
    return Spec(traced.text, traced=True, origins=traced.origins), Captured(traced.recipes)


def _settle(future: Future[None], run: Callable[[], None]) -> None:
    try:
        run()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(None)


def _for_this_machine(path: str, contents: bytes) -> bytes:
    versions = _attnc.run(["version", *_cudnn_option()])
    gpu, cudnn = versions["device"], versions["cudnn"]
    sm = gpu["sm"] if gpu["found"] else None
    infos = PlanFile(contents).plans
    for info in [info for info in infos if info.sm == sm] or infos:
        was = _version_text(info.cudnn_version)
        if sm is not None and info.sm != sm:
            what = f"for {info.target} (sm_{info.sm}), and this GPU is {gpu['name']} (sm_{sm})"
        elif info.cudnn_version and cudnn["found"] and was != cudnn["version"]:
            what = f"with cuDNN {was}, and this process uses cuDNN {cudnn['version']}"
        else:
            continue
        warnings.warn(f"{path} was compiled {what}: it is compiled again", stacklevel=3)
        return plans.recompile(contents, "native" if sm is not None else info.target)
    return contents


def _cudnn_option() -> list[str]:
    folder = _find.cudnn_folder()
    return ["--cudnn", folder] if folder is not None else []


def _version_text(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _has_torch_tensor(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return True
    return False


def _has_jax_array(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    jax = sys.modules.get("jax")
    array = getattr(jax, "Array", None)  # while jax is imported, there is none
    return array is not None and any(isinstance(value, array) for value in (*args, *kwargs.values()))


def _as_float(value: Any, q: Any) -> Any:
    return value.astype("float64" if q.dtype.name == "float64" else "float32")
