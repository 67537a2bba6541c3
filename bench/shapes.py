"""The shapes whose times figures of predictions are fitted to, and those that they are compared with.

Each is a specification, a set ("fit", or "held" for those that no figure may be fitted to) and the directions to
time. Few rows (decoding) come first, then short and long sequences, 8 bits, and the variants of bench/variants.
"""
import dataclasses
import pathlib

import results

VARIANTS_SHAPE = (4, 32, 8, 4096, 128)
FEW_ROWS = "few_rows"  # the group of decoding


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    group: str
    spec: str  # the text
    set: str = "fit"
    directions: tuple = ("fwd",)


def attention(*clauses, outputs="o, lse"):
    body = "".join(f"  {clause};\n" for clause in (*clauses, f"outputs {outputs}"))
    return f"attention shape {{\n{body}}}\n"


def dims(batch, heads, rows, keys, depth):
    """Sizes for heads such as "32/8", and a depth "128", or "576/512" for one of q and k and one of v."""
    of_q, of_kv = heads.split("/")
    qk, *v = str(depth).split("/")
    depth = f"Dqk = {qk}, Dv = {v[0]}" if v else f"D = {qk}"
    return f"dims B = {batch}, Hq = {of_q}, Hkv = {of_kv}, Sq = {rows}, Skv = {keys}, {depth}"


def pages(size):
    return f"layout k: paged(page = {size}), v: paged(page = {size})"


LENGTHS = {
    "all": "lengths kv = Skv",
    "linear": "lengths kv = (i0 + 1) * Skv // B",
    "falling": "lengths kv = Skv // (i0 + 1)",  # one long sequence, many short ones
    "most": "lengths kv = Skv - 128 * i0",
    "half": "lengths kv = Skv // 2",
}
CAUSAL = ("align bottom_right", "mask q_idx >= kv_idx")


def window(size):
    return "align bottom_right", f"mask q_idx >= kv_idx && q_idx - kv_idx < {size}"


# batch, heads, keys, depth, clauses, and rows if there are several
DECODE = {
    "fit": [
        (1, "32/8", 512, 128), (1, "32/8", 4096, 128), (1, "32/8", 32768, 128), (1, "32/8", 131072, 128),
        (4, "32/8", 2048, 128), (8, "32/8", 32768, 128), (16, "32/8", 1024, 128), (32, "32/8", 4096, 128),
        (64, "32/8", 8192, 128), (128, "32/8", 1024, 128), (256, "32/8", 512, 128), (256, "32/8", 4096, 128),
        (1, "32/32", 2048, 128), (8, "32/32", 4096, 128), (64, "32/32", 1024, 128), (16, "16/16", 2048, 64),
        (128, "12/12", 512, 64), (1, "64/8", 16384, 128), (16, "64/8", 8192, 128), (128, "64/8", 2048, 128),
        (32, "28/4", 4096, 128), (8, "40/8", 8192, 128), (32, "8/1", 4096, 256), (64, "64/1", 8192, 128),
        (4, "48/1", 8192, 128), (16, "71/1", 2048, 64), (16, "16/8", 8192, 256), (1, "8/4", 4096, 256),
        (1, "64/8", 8192, 64), (64, "64/8", 4096, 64), (16, "32/32", 2048, 96), (16, "32/32", 2048, 80),
        # latent attention
        (1, "128/1", 4096, "576/512"), (1, "128/1", 65536, "576/512"), (8, "128/1", 8192, "576/512"),
        (64, "128/1", 8192, "576/512"), (128, "128/1", 2048, "576/512"), (64, "16/1", 4096, "576/512"),
        (4, "16/1", 32768, "576/512"), (32, "128/1", 4096, "576/512", *CAUSAL, 2),
        # pages
        (1, "32/8", 8192, 128, pages(64), LENGTHS["all"]), (16, "32/8", 4096, 128, pages(64), LENGTHS["all"]),
        (64, "32/8", 8192, 128, pages(64), LENGTHS["all"]), (128, "64/8", 2048, 128, pages(64), LENGTHS["linear"]),
        (1, "32/8", 32768, 128, pages(16), LENGTHS["all"]), (16, "32/8", 4096, 128, pages(16), LENGTHS["all"]),
        (64, "32/8", 8192, 128, pages(16), LENGTHS["all"]), (256, "32/8", 1024, 128, pages(16), LENGTHS["all"]),
        (16, "64/8", 8192, 64, pages(16), LENGTHS["linear"]), (32, "32/32", 2048, 128, pages(16), LENGTHS["all"]),
        (16, "16/8", 4096, 256, pages(16), LENGTHS["all"]), (32, "32/8", 4096, 128, pages(32), LENGTHS["linear"]),
        (1, "32/8", 4096, 128, pages(1), LENGTHS["all"]), (16, "32/8", 4096, 128, pages(1), LENGTHS["all"]),
        (64, "32/8", 8192, 128, pages(1), LENGTHS["all"]), (32, "64/8", 4096, 64, pages(1), LENGTHS["linear"]),
        (64, "128/1", 8192, "576/512", pages(64), LENGTHS["all"]),
        (64, "128/1", 8192, "576/512", pages(1), LENGTHS["all"]),
        (32, "16/1", 4096, "576/512", pages(16), LENGTHS["linear"]),
        # lengths
        (64, "32/8", 8192, 128, LENGTHS["linear"]), (64, "32/8", 8192, 128, pages(16), LENGTHS["linear"]),
        (32, "32/8", 32768, 128, pages(64), LENGTHS["falling"]), (64, "32/8", 4096, 128, pages(1), LENGTHS["falling"]),
        (64, "128/1", 8192, "576/512", pages(64), LENGTHS["linear"]), (16, "64/8", 16384, 128, LENGTHS["half"]),
        # windows
        (64, "64/8", 16384, 64, pages(64), LENGTHS["most"], *window(128)),
        (64, "64/8", 16384, 64, pages(64), LENGTHS["most"], "align bottom_right",
         "mask q_idx >= kv_idx && (q_idx - kv_idx < 128 || kv_idx < 4)"),
        (32, "32/8", 8192, 128, LENGTHS["linear"], *window(1024)), (64, "32/8", 8192, 128, *window(1024)),
        (16, "16/8", 16384, 256, LENGTHS["linear"], *window(4096)),
        (128, "32/8", 4096, 128, pages(16), LENGTHS["linear"], *window(512)),
        # packed sequences
        (64, "32/8", 4096, 128, "layout thd", "lengths q = 1, kv = (i0 + 1) * Skv // B"),
        (16, "32/8", 8192, 128, "layout thd", "lengths q = 1, kv = Skv"),
        # several rows
        (16, "32/8", 4096, 128, *CAUSAL, 2), (64, "32/8", 8192, 128, *CAUSAL, 4), (1, "64/8", 16384, 128, *CAUSAL, 8),
        (8, "32/32", 4096, 128, *CAUSAL, 4), (32, "32/8", 4096, 128, pages(64), LENGTHS["linear"], *CAUSAL, 4),
        (64, "32/8", 8192, 128, *CAUSAL, 16), (16, "64/1", 4096, 128, *CAUSAL, 8),
        (16, "16/8", 16384, 256, *window(4096)), (32, "16/8", 8192, 256, pages(16), LENGTHS["linear"], *window(1024)),
        (64, "8/4", 4096, 256, LENGTHS["linear"]), (8, "32/8", 32768, 128, pages(64), LENGTHS["all"], *window(2048)),
        (32, "128/1", 8192, "576/512"), (16, "128/1", 16384, "576/512", pages(64), LENGTHS["half"]),
        (8, "64/1", 4096, "576/512"), (48, "64/1", 2048, "576/512", pages(16), LENGTHS["all"]),
        # scores
        (32, "16/8", 4096, 256, "score 50 * tanh(score / 50)"),
        (64, "64/8", 4096, 64, "tensor s: f32[Hq]", "sink s[h]", pages(64), LENGTHS["linear"], *window(128)),
        (32, "32/32", 2048, 128, "tensor a: f32[Hq]", "score score + a[h] * (kv_idx - q_idx)"),
        (16, "32/32", 1024, 64, "tensor t: bf16[Hq, Skv]", "score score + t[h, kv_idx]"),
        (64, "32/8", 8192, 128, "dtype e4m3", "quantize per_tensor"),
        (16, "32/8", 2048, 128, "dtype e4m3", "quantize per_tensor"),
    ],
    "held": [
        (1, "32/8", 1024, 128), (2, "32/8", 16384, 128), (12, "32/8", 6000, 128), (48, "32/8", 3000, 128),
        (96, "32/8", 2048, 128), (1, "32/8", 65536, 128), (24, "32/32", 1500, 128), (2, "40/40", 4096, 128),
        (64, "20/20", 1500, 64), (8, "64/8", 32768, 128), (64, "96/8", 4096, 128), (16, "48/8", 4096, 128),
        (8, "16/1", 8192, 256), (128, "32/1", 1024, 128), (32, "24/8", 2048, 64), (4, "16/16", 8192, 256),
        (16, "128/1", 4096, "576/512"), (2, "128/1", 32768, "576/512"), (96, "32/1", 3000, "576/512"),
        (32, "32/8", 2048, 128, pages(64), LENGTHS["all"]), (96, "32/8", 4096, 128, pages(16), LENGTHS["linear"]),
        (4, "32/8", 16384, 128, pages(1), LENGTHS["all"]), (8, "64/8", 8192, 128, pages(32), LENGTHS["linear"]),
        (16, "128/1", 16384, "576/512", pages(64), LENGTHS["linear"]),
        (24, "32/8", 16384, 128, LENGTHS["falling"]), (48, "32/8", 4096, 128, LENGTHS["linear"]),
        (48, "32/8", 8192, 128, pages(64), LENGTHS["most"], *window(512)), (32, "64/8", 8192, 64, *window(128)),
        (32, "32/8", 4096, 128, "layout thd", "lengths q = 1, kv = Skv - 64 * i0"),
        (24, "16/8", 8192, 256, LENGTHS["linear"], *window(2048)), (24, "8/1", 6000, 256, pages(64), LENGTHS["half"]),
        (40, "128/1", 3000, "576/512", LENGTHS["linear"]), (12, "64/4", 12000, 128, pages(16), LENGTHS["all"]),
        (24, "32/8", 3000, 128, *CAUSAL, 4), (4, "64/8", 8192, 128, *CAUSAL, 6), (32, "32/32", 1024, 128, *CAUSAL, 2),
        (8, "128/1", 8192, "576/512", *CAUSAL, 4), (48, "8/4", 4096, 256, "score 50 * tanh(score / 50)"),
    ],
}

BIAS = ("tensor t: bf16[Hq, Sq, Skv]", "score score + t[h, q_idx, kv_idx]")
BOTH = ("fwd", "bwd")
# batch, heads, rows, keys, depth, directions, clauses
SEQUENCES = {
    "fit": [
        # short
        (512, "4/4", 49, 49, 32, BOTH, *BIAS), (64, "12/12", 197, 197, 64, BOTH), (32, "16/16", 128, 128, 64, BOTH),
        (32, "16/16", 512, 512, 64, BOTH, "lengths kv = (i0 + 1) * Skv // B"),
        (8, "12/12", 77, 77, 64, ("fwd",), "mask q_idx >= kv_idx"), (2, "8/8", 4096, 77, 40, ("fwd",)),
        (2, "8/8", 1024, 1024, 80, BOTH), (4, "20/20", 1500, 1500, 64, ("fwd",)), (16, "8/8", 256, 256, 96, BOTH),
        (8, "16/16", 512, 512, 64, BOTH, *BIAS), (16, "32/8", 256, 256, 128, ("fwd",), "mask q_idx >= kv_idx"),
        (4, "16/8", 1024, 1024, 256, ("fwd",), "mask q_idx >= kv_idx"),
        # prefill
        (1, "32/8", 512, 512, 128, ("fwd",), *CAUSAL), (1, "32/8", 2048, 2048, 128, ("fwd",), *CAUSAL),
        (1, "32/8", 8192, 8192, 128, BOTH, *CAUSAL), (1, "32/8", 512, 8192, 128, ("fwd",), *CAUSAL),
        (1, "64/8", 2048, 32768, 128, ("fwd",), *CAUSAL), (4, "32/8", 128, 4096, 128, ("fwd",), *CAUSAL),
        (8, "32/8", 2048, 2048, 128, ("fwd",), pages(64), LENGTHS["all"], *CAUSAL),
        (8, "32/8", 2048, 2048, 128, ("fwd",), pages(16), LENGTHS["linear"], *CAUSAL),
        (8, "32/8", 2048, 2048, 128, ("fwd",), "layout thd", "lengths q = (i0 + 1) * Sq // B, kv = (i0 + 1) * Skv // B",
         "mask q_idx >= kv_idx"),
        (1, "64/8", 8192, 8192, 64, BOTH, *window(128)), (1, "16/8", 4096, 4096, 256, BOTH, *CAUSAL),
        (2, "32/32", 4096, 4096, "192/128", BOTH, *CAUSAL), (4, "16/4", 2048, 2048, 64, BOTH),
        (1, "128/1", 1024, 1024, "576/512", ("fwd",), *CAUSAL), (2, "32/8", 2048, 4096, 128, BOTH, *CAUSAL),
        (4, "32/8", 32, 2048, 128, ("fwd",), *CAUSAL), (2, "32/8", 1024, 1024, 128, BOTH, *CAUSAL),
        # 8 bits
        (4, "32/8", 4096, 4096, 128, ("fwd",), "dtype e4m3", "quantize per_tensor", "layout bshd"),
        (1, "32/8", 2048, 2048, 128, ("fwd",), "dtype e4m3", "quantize per_tensor", "layout bshd", *CAUSAL),
        (4, "16/16", 1024, 1024, 64, ("fwd",), "dtype e4m3", "quantize per_tensor", "layout bshd"),
        (2, "16/4", 4096, 4096, 256, ("fwd",), "dtype e4m3", "quantize per_tensor", "layout bshd", *CAUSAL),
    ],
    "held": [
        (128, "6/6", 144, 144, 32, BOTH, *BIAS), (16, "16/16", 577, 577, 64, BOTH), (24, "12/12", 384, 384, 64, BOTH),
        (2, "10/10", 1024, 1024, 64, ("fwd",)), (1, "24/24", 4608, 4608, 128, ("fwd",)),
        (1, "32/8", 1024, 1024, 128, ("fwd",), *CAUSAL), (2, "64/8", 3000, 3000, 128, ("fwd",), *CAUSAL),
        (1, "32/8", 256, 16384, 128, ("fwd",), *CAUSAL), (1, "32/8", 16384, 16384, 128, BOTH, *window(4096)),
        (4, "32/8", 1500, 1500, 128, ("fwd",), pages(64), LENGTHS["linear"], *CAUSAL),
        (2, "16/16", 2048, 2048, 128, ("fwd",), "dtype e4m3", "quantize per_tensor", "layout bshd"),
    ],
}


def words_of(clauses):
    """A short name of what the clauses say."""
    text = "_".join(clauses)
    words = [f"page{size}" for size in (1, 16, 32, 64, 128) if f"page = {size})" in text]
    words += [word for word, clause in LENGTHS.items() if clause in clauses]
    words += [word for word in ("thd", "e4m3", "sink", "tanh", "kv_idx - q_idx < 0") if word in text]
    if "q_idx - kv_idx <" in text:
        words.append("window")
    elif "q_idx >= kv_idx" in text:
        words.append("causal")
    if "|| kv_idx" in text:
        words.append("start")
    words += ["bias"] * ("tensor t" in text) + ["slopes"] * ("tensor a" in text)
    return words


def name_of(batch, heads, rows, keys, depth, clauses):
    words = [f"b{batch}", "h" + heads.replace("/", "x"), f"q{rows}", f"k{keys}", "d" + str(depth).replace("/", "x")]
    return "_".join(words + words_of(clauses))


def decoding():
    for of, rows in DECODE.items():
        for batch, heads, keys, depth, *clauses in rows:
            count = clauses.pop() if clauses and isinstance(clauses[-1], int) else 1
            spec = attention(dims(batch, heads, count, keys, depth), *clauses)
            yield Shape(name_of(batch, heads, count, keys, depth, clauses), FEW_ROWS, spec, of)


def sequences():
    for of, rows in SEQUENCES.items():
        for batch, heads, count, keys, depth, directions, *clauses in rows:
            layout = [] if any("layout" in clause for clause in clauses) else ["layout bshd"]
            spec = attention(dims(batch, heads, count, keys, depth), *layout, *clauses)
            yield Shape(name_of(batch, heads, count, keys, depth, clauses), "sequences", spec, of, directions)


def variants():
    for name in results.ORDER:
        text = (results.VARIANTS / f"{name}.attn").read_text(encoding="utf-8")
        yield Shape(name, "variants", text, "fit", BOTH)


def all_shapes():
    """In the order of their importance: a run that is cut has those of decoding and the variants."""
    shapes = [*decoding(), *variants(), *sequences()]
    names = [shape.name for shape in shapes]
    doubled = {name for name in names if names.count(name) > 1}
    assert not doubled, doubled
    return shapes
