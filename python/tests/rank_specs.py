"""Attentions for several GPUs: what test_ranks_gpu.py runs, and the reference's results, prepared anywhere.

    python python/tests/rank_specs.py FOLDER [--ranks 2] [--target h100]

writes, for each, a plan of all ranks, and its inputs, outputs and gradients, by the reference in double.
"""

import argparse
import concurrent.futures
import pathlib
import sys

import torch

import attn
from attn.specs import Spec, bind_arguments

SIZES = {"B": 2, "Hq": 4, "Hkv": 2, "Sq": 520, "D": 64}
NOT_A_MULTIPLE = {**SIZES, "B": 1, "Sq": 777}
CAUSAL = "attention causal { dims B, Hq, Hkv, Sq, D; layout bshd; mask q_idx >= kv_idx; outputs o, lse; shard %s; }"
ALL_OUTPUTS = """attention outputs { dims B, Hq, Hkv, Sq, D; layout bshd; mask q_idx >= kv_idx && kv_idx != 5;
  outputs o, lse; }"""


def integers(*shape, low=0, high=None):
    return lambda random: torch.randint(low, high, shape, generator=random, dtype=torch.int32)


def floats(*shape, dtype=torch.float32):
    return lambda random: torch.randn(shape, generator=random).to(dtype)


def documents(random):
    return torch.sort(torch.randint(0, 7, (2, 520), generator=random, dtype=torch.int32), 1).values


# Name: (spec, sizes and parameters, captured tensors and params). Values may be functions of a generator.
SPECS = {
    "full": ("noop", SIZES, {}),
    "causal": ("causal", NOT_A_MULTIPLE, {}),
    "causal_sequence": (CAUSAL % "sequence", SIZES, {}),
    "causal_heads": (CAUSAL % "heads", {**SIZES, "Hq": 8, "Hkv": 4}, {}),
    "window": ("sliding_window", {**SIZES, "window": 100}, {}),
    "softcap": ("softcap", SIZES, {}),
    "prefix": ("prefix_lm", {**SIZES, "prefix": 200}, {}),
    "prefixes": ("prefix_lm_batched", SIZES, {"prefix_length": integers(2, low=1, high=520)}),
    "documents": ("document_causal", SIZES, {"doc": documents}),
    "longformer": ("longformer", {**SIZES, "window": 64},
                   {"is_global": lambda random: (torch.arange(520) % 130 == 0).expand(2, 520).contiguous()}),
    "bigbird": ("bigbird", SIZES, {"blocks": lambda random: torch.rand(4, 9, 9, generator=random) < 0.5}),
    "alibi": ("alibi", SIZES, {}),
    "relative_bias": ("relative_bias", SIZES, {}),
    "learned": ("t5_bias_causal", SIZES, {"table": floats(32, 4)}),
    "sink": ("gpt_oss", {**SIZES, "window": 128}, {"sinks": floats(4)}),
    "sigmoid": ("sigmoid_causal", SIZES, {}),
    "padding": ("padding", SIZES, {"lengths_q": lambda random: torch.tensor([400, 100], dtype=torch.int32),
                                   "lengths_kv": lambda random: torch.tensor([520, 33], dtype=torch.int32)}),
    "cross": ("cross", {**SIZES, "Sq": 72, "Skv": 1500}, {}),
    "bottom_right": ("causal_bottom_right", {**SIZES, "Sq": 128, "Skv": 1024}, {}),
    "temperature": ("temperature", SIZES, {"temperature": 2.0}),
    "chunked": ("chunked", {**SIZES, "chunk": 128}, {}),
    "two_depths": ("mla_prefill", {"B": 1, "Hq": 4, "Hkv": 4, "Sq": 384, "Dqk": 192, "Dv": 128}, {}),
    "dropout": ("dropout_causal", {**SIZES, "Sq": 512},
                {"seed": lambda random: torch.tensor([7]), "offset": lambda random: torch.tensor([9])}),
    "through_lse": (CAUSAL.replace("outputs", "grad q, k, v, lse; outputs") % "sequence", SIZES, {}),
    "hidden_key": (ALL_OUTPUTS, {**SIZES, "B": 1}, {}),
}
# Other plans that checks need.
MORE = {
    "training": (CAUSAL % "sequence", {"B": 1, "Hq": 4, "Hkv": 2, "Sq": 512, "D": 64}, 2),
    "training_whole": ("causal", {"B": 1, "Hq": 4, "Hkv": 2, "Sq": 512, "D": 64}, 0),
    "large": (CAUSAL % "sequence", {"B": 1, "Hq": 8, "Hkv": 8, "Sq": 16384, "D": 64}, 2),
    "four_ranks": (CAUSAL % "sequence", SIZES, 4),
}


def attention_of(name):
    spec, sizes, _ = SPECS[name]
    return Spec.of(spec), sizes


def inputs_of(name):
    """q, k, v, do and the others, on the CPU, of bf16 values."""
    spec, sizes, others = SPECS[name]
    random = torch.Generator().manual_seed(len(name))
    known = Spec.of(spec).described(sizes).sizes

    def tensor(heads, rows, depth):
        return torch.randn(known["B"], known[heads], known[rows], known[depth], generator=random).bfloat16()

    found = {"q": tensor("Hq", "Sq", "Dqk"), "k": tensor("Hkv", "Skv", "Dqk"), "v": tensor("Hkv", "Skv", "Dv"),
             "do": tensor("Hq", "Sq", "Dv")}
    if Spec.of(spec).described(sizes).facts["grad_of_lse"]:
        found["dlse"] = torch.randn(known["B"], known["Hq"], known["Sq"], generator=random)
    given = {key: value(random) if callable(value) else value for key, value in others.items()}
    return found, given


def of_loss(outputs, names, tensors):
    """The outputs that a loss depends on, and its gradients by them: o, and lse if the spec says so."""
    reached = [("o", "do"), *([("lse", "dlse")] if "dlse" in tensors else [])]
    return [outputs[names.index(name)] for name, _ in reached], [tensors[given] for _, given in reached]


def expected_of(name):
    """Outputs and gradients by name, in double."""
    spec, sizes = attention_of(name)
    said = spec.described(sizes)
    tensors, given = inputs_of(name)
    f = attn.Attention(spec, {key: value for key, value in sizes.items()})
    leaves = {key: tensors[key].double().requires_grad_() for key in "qkv"}
    leaves |= {key: value.double().requires_grad_() if key in said.learned else value
               for key, value in given.items()}
    outputs = f(**leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    wanted = {key: leaf for key, leaf in leaves.items() if isinstance(leaf, torch.Tensor) and leaf.requires_grad}
    reached, given = of_loss(outputs, said.outputs, tensors)
    gradients = torch.autograd.grad(reached, list(wanted.values()), [x.double() for x in given])
    return {"outputs": dict(zip(said.outputs, (x.detach() for x in outputs))),
            "gradients": dict(zip(wanted, gradients))}


def prepare(folder, name, ranks, target):
    """Returns what went wrong, or None."""
    plan = folder / f"{name}.attnplan"
    if name in SPECS:
        spec, sizes = attention_of(name)
        if not (folder / f"{name}.pt").exists():
            torch.save(expected_of(name), folder / f"{name}.pt")
    else:
        spec, sizes, ranks = Spec.of(MORE[name][0]), *MORE[name][1:]
    if plan.exists():
        return None
    options = ["--direction", "both", "--target", target, "-o", str(plan.resolve())]
    try:
        spec.answer("compile", *bind_arguments(sizes), *(["--ranks", str(ranks)] if ranks else []), *options)
    except attn.Error as error:
        return f"{name}: {error}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--target", default="h100")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        errors = list(filter(None, pool.map(
            lambda name: prepare(options.folder, name, options.ranks, options.target), [*SPECS, *MORE])))
    print("\n".join([*errors, f"{len(SPECS) + len(MORE) - len(errors)} plans"]))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
