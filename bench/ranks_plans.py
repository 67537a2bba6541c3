"""What ranks.py measures, and its plans: each a file of FOLDER, compiled beforehand on any machine."""
import concurrent.futures
import json
import pathlib
import subprocess
import time
from typing import NamedTuple

MASKS = {  # of rows and keys by their numbers in the whole: {q}, {k}
    "causal": "{q} >= {k}",
    "documents": "doc[b, {q}] == doc[b, {k}] && {q} >= {k}",
    "window": "{q} >= {k} && {q} - {k} < 4096",
    "prefix": "{k} < {prefix} || {q} >= {k}",
    "longformer": "abs({q} - {k}) <= 256 || is_global[b, {q}] || is_global[b, {k}]",
    "blocks": "blocks[{q} // {block}, {k} // {block}]",
}
TENSORS = {
    "documents": "tensor doc: i32[1, {size}] monotone runs({runs});",
    "longformer": "tensor is_global: bool[1, {size}];",
    "blocks": "tensor blocks: bool[{blocks}, {blocks}];",
}
SCHEMES = ("one", "divided", "ring", "ulysses")
GLOBAL_TOKENS = 64
SHORTEST, LONGEST = 2048, 65536  # of a document, in tokens


class Case(NamedTuple):
    """A mask of so many rows and keys, with as many heads."""

    mask: str
    size: int
    heads: int
    key_heads: int
    depth: int
    ranks: int

    @property
    def name(self):
        return f"{self.mask}_s{self.size}_h{self.heads}_{self.key_heads}_d{self.depth}"

    @property
    def block(self):
        return max(1024, self.size // 128)

    def places(self):
        return {"size": self.size, "prefix": min(65536, self.size // 8), "block": self.block,
                "blocks": self.size // self.block, "runs": self.size // SHORTEST + 1}


class Plan(NamedTuple):
    """A file, and what makes it: a spec, perhaps divided for the values of its tensors."""

    name: str
    text: str
    ranks: int = 0
    values: str = ""  # the tensor


def spec(case, name, mask, rows=None, keys=None, groups=1):
    """The spec of a training pair, of some rows and keys or of all, and of one of `groups` groups of heads."""
    tensor = TENSORS.get(case.mask, "") if mask else ""
    text = f"mask {mask.format(**{'q': 'q_idx', 'k': 'kv_idx', **case.places()})};" if mask else ""
    return (f"attention {name} {{\n  dims B = 1, Hq = {case.heads // groups}, Hkv = {case.key_heads // groups}, "
            f"Sq = {rows or case.size}, Skv = {keys or case.size}, D = {case.depth};\n"
            f"  dtype bf16; layout bshd;\n  {tensor.format(**case.places())}\n  {text}\n"
            "  outputs o, lse; grad q, k, v;\n}\n")


def shifted(mask, row, key):
    """The mask of rows from `row` on and keys from `key` on."""
    return mask.replace("{q}", f"(q_idx + {row})").replace("{k}", f"(kv_idx + {key})")


def plans_of(case, scheme):
    mask, tensors = MASKS[case.mask], TENSORS.get(case.mask, "").split()
    name = f"{case.name}_{scheme}"
    if scheme == "one":
        return [Plan(name, spec(case, "whole", mask))]
    if scheme == "divided":
        return [Plan(f"{name}_{case.ranks}", spec(case, "divided", mask), case.ranks,
                     tensors[1].rstrip(":") if tensors else "")]
    if scheme == "ulysses":
        return [Plan(f"{name}_{case.ranks}", spec(case, "ulysses", mask, groups=case.ranks))]
    part = case.size // case.ranks
    if case.mask == "causal":  # zigzag: a rank has an early and a late chunk
        return [Plan(f"{name}_{case.ranks}_own", spec(case, "own", "{q} >= {k}", part, part)),
                Plan(f"{name}_{case.ranks}_early", spec(case, "early", "", part, part // 2)),
                Plan(f"{name}_{case.ranks}_late", spec(case, "late", "", part // 2, part))]
    return [Plan(f"{name}_{case.ranks}_{row}_{key}",
                 spec(case, f"ring{row}_{key}", shifted(mask, row * part, key * part), part, part))
            for row in range(case.ranks) for key in range(case.ranks) if not hidden(case, row, key)]


def hidden(case, row, key):
    """Whether rank `row` sees nothing of the keys of rank `key`, whatever the values are."""
    part = case.size // case.ranks
    if case.mask == "window":
        return key > row or (row - key - 1) * part + 1 >= 4096
    if case.mask == "prefix":
        return key > row and key * part >= case.places()["prefix"]
    return key > row and case.mask in ("causal", "documents")


def values_of(case):
    """{name: array} of the captured tensors, the same in every process."""
    import numpy as np

    random = np.random.default_rng(case.size)
    if case.mask == "documents":
        lengths = []
        while sum(lengths) < case.size:
            lengths.append(int(2 ** random.uniform(np.log2(SHORTEST), np.log2(min(LONGEST, case.size // 2)))))
        return {"doc": np.repeat(np.arange(len(lengths)), lengths)[None, :case.size].astype(np.int32)}
    if case.mask == "longformer":
        return {"is_global": np.arange(case.size)[None] < GLOBAL_TOKENS}
    if case.mask == "blocks":  # a third, and the diagonal
        count = case.size // case.block
        return {"blocks": (random.random((count, count)) < 1 / 3) | np.eye(count, dtype=bool)}
    return {}


def prepare(options, cases):
    """Compiles what is not there yet. An error is kept in a file beside the plan that is missing."""
    begin = time.monotonic()
    plans = {plan.name: (case, plan) for case in cases for scheme in options.schemes
             for plan in plans_of(case, scheme)}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        errors = [error for error in pool.map(lambda pair: compiled(options, *pair), plans.values()) if error]
    print(f"{len(plans) - len(errors)} of {len(plans)} plans in {time.monotonic() - begin:.0f} s", flush=True)
    return errors


def compiled(options, case, plan):
    file = options.plans / f"{plan.name}.attnplan"
    if file.exists():
        return None
    source = file.with_suffix(".attn")
    source.write_text(plan.text, encoding="utf-8")
    command = [options.attnc, "compile", source, "-o", file, "--target", options.target, "--format", "json"]
    if plan.ranks:
        command += ["--ranks", str(plan.ranks)]
        for name, array in values_of(case).items() if plan.values else ():
            saved = save_array(options.plans / f"{case.name}_{name}.npy", array)
            command += ["--in", f"{name}=@{saved}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    error = message_of(done)
    file.with_suffix(".error").write_text(error + "\n", encoding="utf-8")
    print(f"{plan.name}: {error}", flush=True)
    return error


def save_array(path, array):
    import numpy as np

    np.save(path, array)
    return path


def message_of(done):
    try:
        return json.loads(done.stdout)["error"]["message"].splitlines()[0]
    except (ValueError, KeyError):
        return (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]


def read(folder, plan):
    """The contents of a plan's file. Raises RuntimeError with the reason if it was not compiled."""
    file = pathlib.Path(folder) / f"{plan.name}.attnplan"
    if file.exists():
        return file.read_bytes()
    error = file.with_suffix(".error")
    raise RuntimeError(error.read_text().strip() if error.exists() else f"{file} is missing: use --prepare")
