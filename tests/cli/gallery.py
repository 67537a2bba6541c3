"""The gallery: a picture of every spec and of what else `attnc draw` shows, and docs/gallery.md.

`ATTN_UPDATE_GOLDEN=1 tests/cli/draw_test.py Draw.test_gallery` writes all of it.
"""
import random
import struct
import textwrap

ACROSS = 3  # pictures
WIDTH = 110  # of lines of text

SMALL = "--bind Sq=48"
SCORES = SMALL + " --b 0 --h 1 --score"
RANDOM = "--bind Sq=32 --b 0 --h 1 --score"
IMAGE = "--bind width=16 --bind height=8 --bind kernel=3"

# Families of specs, a sentence about each, and how their specs are drawn.
FAMILIES = (
    ("Causal",
     "A query sees itself and what came before it. Specs differ in layouts, head dimensions and "
     "what else they do.",
     {"causal": SMALL, "causal_bottom_right": "--bind Sq=16 --bind Skv=48",
      "inverse_causal": SMALL, "bhsd": SMALL, "sbhd": SMALL, "strided_views": SMALL,
      "packed_qkv": SMALL, "gqa_5to1": SMALL, "head_dim_80": SMALL, "head_dim_100": SMALL,
      "head_dim_256": SMALL, "mla_prefill": SMALL, "gemma2_global": SMALL, "softmax_one": SMALL,
      "merge_by_lse": "--bind Sq=48 --bind Skv=24", "softpick": SMALL, "gated": SMALL,
      "rope_causal": SMALL, "qk_norm": SMALL, "differential": SMALL,
      "sink_global": SMALL, "dropout_causal": SMALL, "fp8_causal": SMALL, "fp8_current": SMALL,
      "fp8_training": SMALL, "mxfp8": SMALL}),
    ("Windows and chunks",
     "A query sees what is near. At the size of Gemma-2 squares are blocks: kernels compute the "
     "blue ones without a mask, evaluate the mask in the orange ones, and skip the rest, 62.5 % of "
     "the scores.",
     {"gemma2_local": "", "sliding_window": SMALL + " --bind window=12",
      "symmetric_window": SMALL + " --bind window=6", "gpt_oss": SMALL + " --bind window=8",
      "fp8_window": SMALL + " --bind window=12",
      "dropout_softcap_window": SMALL + " --bind window=24",
      "nsa": SMALL + " --bind window_size=12",
      "dilated_window": SMALL + " --bind window=12", "chunked": SMALL + " --bind chunk=16",
      "chunked_padded": SMALL + " --bind chunk=16 --b 1", "batchify": SMALL + " --bind length=12"}),
    ("Packed sequences",
     "Sequences beside one another, each of which sees itself. Their ids are the spec's defaults or "
     "random; `--in doc=@ids.npy` draws those of a file.",
     {"document": SMALL + " --b 0 --in doc=random:3",
      "document_causal": SMALL + " --b 0 --in doc=random:3",
      "document_inner": SMALL + " --bind documents=3 --bind prefix=6",
      "document_padded": SMALL + " --b 0",
      "jagged": "--bind Sq=48 --bind Skv=32 --in q_offs=random:4 --in kv_offs=random:2",
      "multi_item": "--bind Sq=80 --b 0 --bind B=1"}),
    ("Prefixes",
     "Some keys are seen by all that follow, or by all.",
     {"prefix_lm": SMALL + " --bind prefix=12",
      "prefix_lm_batched": SMALL + " --bind B=3", "shared_prefix": SMALL + " --b 0",
      "gemma3_image": SMALL + " --bind window=8 --b 0", "block_diffusion": SMALL + " --bind block=6"}),
    ("Images",
     "Positions are the pixels of an image, here of 16 x 8: a query sees the pixels or tiles around "
     "its own.",
     {"natten_2d": IMAGE, "natten_tiled": IMAGE + " --bind tile=4",
      "sliding_tile_2d": "--bind width=16 --bind height=16 --bind kernel=3 --bind tile=4"}),
    ("Sparse",
     "Windows with some global tokens, the blocks of BigBird, and the nodes of a binary tree behind "
     "17 keys that all of them see.",
     {"longformer": SMALL + " --bind window=5 --b 0 --in is_global=random:2",
      "bigbird": "--bind Hq=1 --bind Hkv=1 --bind Sq=2048 --blocks 64,64 --in blocks=@docs/pictures/bigbird.npy",
      "tree_mask": "--bind B=1 --bind Sq=31 --bind Skv=48 --in ancestors=@docs/pictures/tree_mask.npy"}),
    ("Lengths and decoding",
     "Each batch has its own length. A row that is alone is drawn taller than it is.",
     {"padding": SMALL + " --bind B=3", "thd": SMALL + " --bind B=3",
      "chunked_prefill": "--bind B=3 --bind Sq=16 --bind Skv=48", "decode": "--bind Skv=64",
      "decode_gqa": "--bind B=3 --bind Skv=64", "paged_decode": "--bind B=3 --bind Skv=64",
      "tree_decode": "--bind B=1 --bind Sq=31 --bind Skv=48 --in ancestors=@docs/pictures/tree_mask.npy",
      "cache_fp8": "--bind B=3 --bind Skv=64", "cache_int8": "--bind B=3 --bind Skv=64",
      "mla_latent": "--bind B=3 --bind Skv=64",
      "chosen_tokens": "--bind B=1 --bind Sq=16 --bind Skv=64 --bind most=12",
      "chosen_fp8": "--bind B=1 --bind Sq=16 --bind Skv=64 --bind most=12"}),
    ("Scores by position",
     "`--score` colours by how much a score changes. Tensors of biases and slopes are random.",
     {"alibi": SCORES, "alibi_slopes": SCORES, "alibi_symmetric": SCORES,
      "bloom_positions": SCORES, "relative_bias": SCORES, "checkerboard": RANDOM,
      "t5_bias": SCORES, "t5_bias_causal": SCORES, "sigmoid_causal": SCORES, "hstu": SCORES, "fox": SCORES,
      "fire": SCORES, "alphafold_gated": SMALL + " --b 3 --h 1 --score", "swin_v2": RANDOM,
      "bias_full": RANDOM, "bias_head": RANDOM, "bias_batch": RANDOM, "learned_bias_qk": RANDOM,
      "qk_scales": RANDOM}),
    ("Everything is visible",
     "The mask hides nothing; what some of these do to a score does not depend on its position.",
     {"noop": SMALL, "cross": "--bind Sq=24 --bind Skv=48", "packed_kv": "--bind Sq=48 --bind Skv=16",
      "split_kv": "--bind Sq=16 --bind Skv=48", "fp8_gqa": "--bind Sq=24 --bind Skv=48",
      "dropout": SMALL, "dropout_mask": SMALL, "head_scale": SMALL, "score_select": SMALL,
      "sigmoid": SMALL, "relu": SMALL, "silu_score": SMALL,
      "softcap": SMALL, "squared": SMALL, "temperature": SMALL, "trig": SMALL}),
)

# What the kernels of a strategy compute: the name of the picture, the spec, and how it is drawn.
KERNELS = (
    ("prefix_lm_parts", "prefix_lm", "--bind Sq=512 --bind prefix=96 --parts --strategy parts"),
    ("prefix_lm_native", "prefix_lm", "--bind Sq=512 --bind prefix=96 --parts --strategy native"),
    ("prefix_lm_composite", "prefix_lm",
     "--bind Sq=512 --bind prefix=96 --parts --strategy composite"),
    ("document_segments", "document_causal",
     "--bind Sq=512 --b 0 --in doc=random:3 --parts --strategy segments"),
    ("document_native", "document_causal",
     "--bind Sq=512 --b 0 --in doc=random:3 --parts --strategy native"),
    ("document_block_sparse", "document_causal",
     "--bind Sq=512 --b 0 --in doc=random:3 --parts --strategy block_sparse"),
)

HEAD = """\
# Gallery

The masks of all specs in this repository, drawn by [`attnc draw`](cli.md#draw). Rows are queries, columns are
keys. Most are bound to small sizes, where each score is drawn as the reference evaluates it. Below each
picture are the options that draw it:

```sh
build/attnc draw specs/causal.attn --bind Sq=48 -o causal.svg
```

A test repeats these commands and compares, and writes this page (`tests/cli/gallery.py`).
"""

OF_KERNELS = """
## What kernels compute

`--parts` colours what the kernels of a strategy compute: each of its parts, and the scores that are computed
though the mask hides them, because a kernel skips whole blocks only. Here a prefix language model in two
parts, by attnc's own kernel and by a single one of cuDNN's, which skips what is outside of a band; and packed
documents as ragged sequences, by attnc's own kernel, and as lists of pages.
"""

RANKS = [("ranks_causal", "causal", "--bind Sq=4096 --ranks 4"),
         ("ranks_longformer", "longformer", "--bind B=1 --bind Sq=4096 --ranks 4"),
         ("ranks_decode", "decode", "--bind Skv=4096 --ranks 4")]

OF_RANKS = """
## What ranks compute

`--ranks N` colours each score by which of N GPUs computes it, as `attnc explain --ranks N` divides the attention
([ranks.md](ranks.md)); the legend says how much of the work each has. Ranks have seven colours in turn;
of more than seven, their numbers are in the picture too.
"""


def npy(kind, shape, packed):
    """A .npy file of elements of this type (a code of NumPy's)."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + packed


def bigbird(blocks=32, at_random=2):
    """The neighbours of each block, the first and last one, and some at random."""
    draw = random.Random(1)
    ends = (0, blocks - 1)
    sees = [[abs(i - j) <= 1 or i in ends or j in ends for j in range(blocks)] for i in range(blocks)]
    for row in sees:
        for j in draw.sample([j for j, seen in enumerate(row) if not seen], at_random if not all(row) else 0):
            row[j] = True
    return npy("|b1", (1, blocks, blocks), bytes(seen for row in sees for seen in row))


def tree(depth=5):
    """Each node of a binary tree, from the root down and from left to right, sees itself and its ancestors."""
    masks = []

    def add(above, levels):
        if levels > 0:
            own = above | 1 << len(masks)
            masks.append(own)
            add(own, levels - 1)
            add(own, levels - 1)

    add(0, depth)
    return npy("<i4", (1, len(masks), 1), struct.pack(f"<{len(masks)}i", *masks))


def arrays():
    """Files of values beside the pictures, which their commands read."""
    return {"bigbird.npy": bigbird(), "tree_mask.npy": tree()}


def pictures():
    """(name, spec, options) of each picture."""
    for _, _, specs in FAMILIES:
        for spec, options in specs.items():
            yield spec, spec, options
    yield from KERNELS
    yield from RANKS


def table(shown):
    """A table of pictures; `shown` has (name, spec, options)."""
    rows = ["|" + "   |" * ACROSS, "|" + "---|" * ACROSS]
    for begin in range(0, len(shown), ACROSS):
        cells = [f"![{name}](pictures/{name}.svg)<br>`{spec}.attn`<br>`{options or 'as it is'}`"
                 for name, spec, options in shown[begin:begin + ACROSS]]
        cells += [""] * (ACROSS - len(cells))
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def page():
    text = HEAD
    for title, sentence, specs in FAMILIES:
        shown = [(spec, spec, options) for spec, options in specs.items()]
        text += f"\n## {title}\n\n{textwrap.fill(sentence, WIDTH)}\n\n{table(shown)}"
    return text + OF_KERNELS + "\n" + table(KERNELS) + OF_RANKS + "\n" + table(RANKS)
