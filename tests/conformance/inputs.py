"""Sizes for each spec, and its inputs besides q, k and v."""

import dataclasses
import typing

import numpy

# The second shape has rows without a visible key if the spec can have such rows.
SHAPES = {
    "odd": dict(B=2, Hq=3, Hkv=3, Sq=65, Skv=389, Dqk=40, Dv=72),
    "empty rows": dict(B=2, Hq=6, Hkv=2, Sq=96, Skv=64, Dqk=32, Dv=32),
    "five to one": dict(B=1, Hq=10, Hkv=2, Sq=40, Skv=56, Dqk=64, Dv=64),
    "one row": dict(B=2, Hq=3, Hkv=3, Sq=1, Skv=97, Dqk=64, Dv=64),
}


MOST_ROWS = 197  # of specs with Sq = Skv, so that they have about as many scores as others


@dataclasses.dataclass(frozen=True)
class Extras:
    bind: dict = dataclasses.field(default_factory=dict)  # constants of the spec: --bind
    params: dict = dataclasses.field(default_factory=dict)  # numbers at run time: --in
    tensors: dict = dataclasses.field(default_factory=dict)  # name -> function of sizes, random
    outputs: tuple = ("o", "lse")
    square: bool = False  # Sq = Skv
    one_head_dim: bool = False  # the spec uses `D`, which requires Dqk = Dv
    image: typing.Callable | None = None  # label of the shape -> width and height; implies square
    empty: bool = False  # can have rows without a visible key
    dropout: float = 0.0  # random, by seed and offset
    trained: bool = True  # has gradients: all but 8-bit attention without a `grad` clause, and latent caches
    latent: bool = False  # v is the first columns of k
    depth: int | None = None  # Dqk, if there is one alone


def reals(*names):
    """Standard normal values of shape [names]. A name may also be a number."""
    return lambda size, rng: rng.normal(size=[size.get(name, name) for name in names])


def positive(*names):
    """Positive numbers of shape [names]."""
    return lambda size, rng: rng.uniform(0.5, 2, size=[size[name] for name in names])


def bytes_of(*names):
    """Integers of 8 bits of shape [names]."""
    return lambda size, rng: rng.integers(-4, 5, size=[size[name] for name in names], dtype=numpy.int8)


def integers(make):
    return lambda size, rng: numpy.asarray(make(size, rng)).astype(numpy.int32)


def ids(first=0):
    """[B, Skv]: sorted segment ids, as for packed sequences."""
    return integers(
        lambda size, rng: numpy.sort(rng.integers(first, 6, size=[size["B"], size["Skv"]]), axis=-1)
    )


def up_to(name):
    """[B]: random lengths from 0 to the size of a dimension; the first is 0."""
    return integers(
        lambda size, rng: rng.integers(0, size[name] + 1, size=size["B"])
        * (numpy.arange(size["B"]) > 0)
    )


def chances(share, *names):
    """Booleans of shape [names]; a fraction `share` is true."""
    return lambda size, rng: rng.random([size[name] for name in names]) < share


def offsets(count, name):
    """Start offsets of `count` sequences, and the end of the last, before the end of the dimension."""

    def make(size, rng):
        cuts = numpy.sort(rng.integers(0, size[name] - size[name] // 8 + 1, size=count))
        return numpy.concatenate([[0], cuts])

    return integers(make)


def starts_of(documents):
    """`doc` [Skv], the segment ids, and `offs` [documents], the start of each segment."""

    def cuts(size):
        return numpy.arange(documents) * size["Skv"] // documents

    def numbers(size, rng):
        return numpy.searchsorted(cuts(size), numpy.arange(size["Skv"]), side="right") - 1

    return dict(doc=integers(numbers), offs=integers(lambda size, rng: cuts(size)))


def block_table(block):
    def make(size, rng):
        rows, columns = (-(-size[name] // block) for name in ("Sq", "Skv"))
        table = rng.random([size["Hq"], rows, columns]) < 0.6
        table[0, -1] = False
        return table

    return make


def tree(size, rng):
    """Random words of 32 bits, one bit per node. The last node of the first batch sees none."""
    words = rng.integers(-(2**31), 2**31, size=[size["B"], size["Sq"], (size["Sq"] + 31) // 32])
    words[0, -1] = 0
    return words


def compressed(size, rng):
    """Keys or values, one for 16."""
    return rng.normal(size=[size["B"], size["Hkv"], size["Skv"] // 16, size["Dqk"]])


def listed(most):
    """[B, Sq, ..]: keys, some of them twice, and none; and how many of them count, of the first row none."""

    def shape(size):
        return [size["B"], size["Sq"], min(most, size["Skv"])]

    def numbers(size, rng):
        numbers = rng.integers(0, shape(size)[2] + 1, size=shape(size)[:2])
        numbers[0, 0] = 0
        return numbers

    chosen = integers(lambda size, rng: rng.integers(-1, size["Skv"], size=shape(size)))
    return dict(chosen=chosen, count=integers(numbers))


def scales(*names):
    """Scales of 8-bit tensors: near 1, since nothing is rounded, and all different."""
    return {name: lambda size, rng: 0.5 + rng.random(1) for name in names}


SCALES = scales("descale_q", "descale_k", "descale_v", "descale_s", "scale_s")
OF_OUTPUT = scales("scale_o")
OF_GRADIENTS = scales(
    *"descale_o descale_do descale_dp scale_dp scale_dq scale_dk scale_dv".split()
)
WITH_SINK = ("o", "lse", "lse_without_sink")
IN_8_BITS = ("o", "lse", "amax_s", "amax_o")
LENGTHS = dict(lengths_q=up_to("Sq"), lengths_kv=up_to("Skv"))
KEYS = dict(lengths_kv=up_to("Skv"))
PIXELS = {"odd": (9, 7), "empty rows": (6, 8), "five to one": (8, 5), "one row": (5, 7)}.get
TILES = {"odd": (12, 20), "empty rows": (12, 12), "five to one": (16, 12), "one row": (12, 16)}.get

# Constants are smaller than the specs' defaults, so that they have an effect at these shapes.
def halves(rows, width):
    """[rows, width // 2], standard normal."""
    return lambda size, rng: rng.normal(size=[size[rows], size[width] // 2])


TABLES = dict(cosines=halves("Skv", "Dqk"), sines=halves("Skv", "Dqk"))

EXTRAS = {
    "alphafold_gated": Extras(
        tensors=dict(
            pair=reals("Hq", "Sq", "Skv"), gate=reals("B", "Hq", "Sq", "Dv"), residues=up_to("Skv")
        ),
        outputs=("o", "o_inner", "lse"),
        empty=True,
    ),
    "alibi_slopes": Extras(tensors=dict(slopes=reals("Hq"))),
    "batchify": Extras(bind=dict(length=16), empty=True),
    "bias_batch": Extras(tensors=dict(bias=reals("B", "Sq", "Skv"))),
    "bias_full": Extras(tensors=dict(bias=reals("B", "Hq", "Sq", "Skv"))),
    "bias_head": Extras(tensors=dict(bias=reals("Hq", "Sq", "Skv"))),
    "bigbird": Extras(bind=dict(block=16), tensors=dict(blocks=block_table(16)), empty=True),
    "block_diffusion": Extras(bind=dict(block=5)),
    "bloom_positions": Extras(
        tensors=dict(
            slopes=lambda size, rng: rng.random(size["Hq"]) / 8,
            pos=integers(lambda size, rng: numpy.tile(numpy.arange(size["Skv"]), (size["B"], 1))),
        )
    ),
    "cache_fp8": Extras(
        tensors=KEYS | dict(k_scale=positive("Hkv"), v_scale=positive("Hkv")), empty=True, trained=False
    ),
    "cache_int8": Extras(
        tensors=KEYS
        | dict(
            k=bytes_of("B", "Hkv", "Skv", "Dqk"), v=bytes_of("B", "Hkv", "Skv", "Dv"),
            k_scale=positive("B", "Hkv", "Skv"), v_scale=positive("B", "Hkv", "Skv"),
        ),
        empty=True,
        trained=False,
    ),
    "causal_bottom_right": Extras(empty=True),
    "chunked": Extras(bind=dict(chunk=16), empty=True),
    "chunked_padded": Extras(bind=dict(chunk=7), tensors=dict(pad=up_to("Skv")), empty=True),
    "chunked_prefill": Extras(tensors=KEYS, empty=True),
    "chosen_fp8": Extras(
        bind=dict(most=24), tensors=KEYS | listed(24), empty=True, trained=False, latent=True, depth=576
    ),
    "chosen_tokens": Extras(
        bind=dict(most=24), tensors=KEYS | listed(24), empty=True, trained=False, latent=True
    ),
    "decode": Extras(empty=True),
    "decode_gqa": Extras(tensors=KEYS, empty=True),
    "dilated_window": Extras(bind=dict(window=20, dilation=3), empty=True),
    "document": Extras(tensors=dict(doc=ids()), square=True),
    "document_causal": Extras(tensors=dict(doc=ids()), square=True),
    "document_inner": Extras(
        bind=dict(documents=5, prefix=4), tensors=starts_of(5), square=True
    ),
    "document_padded": Extras(tensors=dict(doc=ids(-1)), square=True, empty=True),
    "dropout": Extras(dropout=0.1),
    "dropout_causal": Extras(dropout=0.1),
    "dropout_mask": Extras(tensors=dict(keep=chances(0.9, "B", "Hq", "Sq", "Skv"))),
    "dropout_softcap_window": Extras(bind=dict(window=20), dropout=0.1, empty=True),
    "differential": Extras(
        tensors={
            "q2": reals("B", "Hq", "Sq", "Dqk"), "k2": reals("B", "Hkv", "Skv", "Dqk"), "lam": reals("Hq")
        },
        outputs=("o", "o_inner", "lse"),
    ),
    "fp8_causal": Extras(tensors=SCALES | OF_OUTPUT, outputs=IN_8_BITS, trained=False),
    "fp8_current": Extras(tensors=SCALES, outputs=IN_8_BITS, trained=False),
    "fp8_gqa": Extras(tensors=SCALES | OF_OUTPUT, outputs=IN_8_BITS, trained=False),
    "fp8_training": Extras(tensors=SCALES | OF_OUTPUT | OF_GRADIENTS, outputs=IN_8_BITS),
    "fp8_window": Extras(
        bind=dict(window=20),
        tensors=SCALES | OF_OUTPUT,
        outputs=IN_8_BITS,
        empty=True,
        trained=False,
    ),
    "fox": Extras(tensors=dict(forget=reals("B", "Hq", "Skv")), square=True),
    "gated": Extras(
        tensors=dict(gate=reals("B", "Hq", "Sq", "Dv")), outputs=("o", "o_inner", "lse"), empty=False
    ),
    "gemma2_global": Extras(one_head_dim=True),
    "gemma2_local": Extras(bind=dict(window=20), one_head_dim=True, empty=True),
    "gemma3_image": Extras(bind=dict(window=10), tensors=dict(image=ids(-1)), square=True),
    "gpt_oss": Extras(
        bind=dict(window=20), tensors=dict(sinks=reals("Hq")), outputs=WITH_SINK, empty=True
    ),
    "head_scale": Extras(tensors=dict(head_scale=reals("Hq"))),
    "hstu": Extras(tensors=dict(bias=reals("Hq", "Sq")), outputs=("o",), square=True),
    "inverse_causal": Extras(empty=True),
    "jagged": Extras(
        bind=dict(sequences=3),
        tensors=dict(q_offs=offsets(3, "Sq"), kv_offs=offsets(3, "Skv")),
        empty=True,
    ),
    "learned_bias_qk": Extras(tensors=dict(bias=reals("Sq", "Skv"))),
    "longformer": Extras(
        bind=dict(window=9), tensors=dict(is_global=chances(0.1, "B", "Skv")), square=True
    ),
    "merge_by_lse": Extras(empty=True),
    "mla_latent": Extras(tensors=KEYS, empty=True, trained=False, latent=True),
    "multi_item": Extras(
        tensors=dict(
            prompt=up_to("Skv"),
            place=integers(lambda size, rng: rng.integers(0, 9, size=[size["B"], size["Skv"]])),
        ),
        square=True,
    ),
    "nsa": Extras(
        bind=dict(size=8, most=4, window_size=20),
        tensors=dict(
            k_compressed=compressed,
            v_compressed=compressed,
            chosen=integers(
                lambda size, rng: rng.integers(-1, size["Skv"] // 8 + 1, size=[size["B"], size["Hkv"], size["Sq"], 4])
            ),
            gates=reals("B", "Hq", "Sq", 3),
        ),
        outputs=("o", "o_inner", "lse"),
        square=True,
        one_head_dim=True,
    ),
    "natten_2d": Extras(bind=dict(kernel=5), image=PIXELS),
    "natten_tiled": Extras(bind=dict(kernel=5, tile=4), image=TILES),
    "packed_qkv": Extras(square=True, one_head_dim=True),
    "packed_kv": Extras(one_head_dim=True),
    "padding": Extras(tensors=LENGTHS, empty=True),
    "paged_decode": Extras(tensors=KEYS, empty=True),
    "prefix_lm": Extras(bind=dict(prefix=30)),
    "prefix_lm_batched": Extras(tensors=dict(prefix_length=up_to("Skv"))),
    "qk_norm": Extras(
        tensors=TABLES | dict(q_weight=reals("Dqk"), k_weight=reals("Dqk")), square=True, one_head_dim=True
    ),
    "qk_scales": Extras(
        tensors=dict(q_scale=reals("B", "Hq", "Sq"), k_scale=reals("B", "Hq", "Skv"))
    ),
    "rope_causal": Extras(tensors=TABLES, square=True, one_head_dim=True),
    "score_select": Extras(bind=dict(slope=0.25)),
    "shared_prefix": Extras(tensors=dict(branch=ids()), square=True),
    "relu": Extras(outputs=("o",)),
    "sigmoid": Extras(outputs=("o",)),
    "sigmoid_causal": Extras(outputs=("o",)),
    "sink_global": Extras(tensors=dict(sinks=reals("Hq")), outputs=WITH_SINK),
    "sliding_tile_2d": Extras(bind=dict(kernel=3, tile=4), image=TILES),
    "sliding_window": Extras(bind=dict(window=20), empty=True),
    "softcap": Extras(bind=dict(cap=2.5)),
    "split_kv": Extras(outputs=("o", "lse", "max", "sum_exp")),
    "strided_views": Extras(one_head_dim=True),
    "swin_v2": Extras(
        tensors=dict(logit_scale=reals("Hq"), bias=reals("Hq", "Sq", "Skv")), square=True
    ),
    "symmetric_window": Extras(bind=dict(window=20), empty=True),
    "fire": Extras(
        tensors=dict(
            w1=reals(32),
            b1=reals(32),
            w2=reals("Hq", 32),
            c=lambda size, rng: -2 - rng.random(1),
            threshold=lambda size, rng: 8 + rng.random(1),
        )
    ),
    "t5_bias": Extras(tensors=dict(table=reals(32, "Hq"))),
    "t5_bias_causal": Extras(tensors=dict(table=reals(32, "Hq"))),
    "temperature": Extras(params=dict(temperature=0.7)),
    "thd": Extras(tensors=LENGTHS, empty=True),
    "tree_decode": Extras(tensors=KEYS | dict(ancestors=integers(tree)), empty=True),
    "tree_mask": Extras(tensors=dict(ancestors=integers(tree)), empty=True),
}


def extras_of(name):
    return EXTRAS.get(name, Extras())


def sizes_of(name, label):
    """The dimensions and constants to bind."""
    extras, dims, constants = extras_of(name), dict(SHAPES[label]), {}
    if extras.image:
        constants["width"], constants["height"] = extras.image(label)
        dims["Skv"] = constants["width"] * constants["height"]
    if extras.square:
        dims["Skv"] = min(dims["Skv"], MOST_ROWS)
    if extras.square or extras.image:
        dims["Sq"] = dims["Skv"]
    if extras.one_head_dim:
        dims["Dv"] = dims["Dqk"]
    if extras.depth:
        dims["Dqk"] = extras.depth
    if extras.latent:
        dims["Dv"] = min(dims["Dv"], dims["Dqk"] - 8)
    return dims, {**constants, **extras.bind}


def tensors_of(name, dims, rng):
    shapes = dict(
        q=("B", "Hq", "Sq", "Dqk"), k=("B", "Hkv", "Skv", "Dqk"), v=("B", "Hkv", "Skv", "Dv")
    )
    if extras_of(name).latent:
        del shapes["v"]
    makers = {key: reals(*names) for key, names in shapes.items()} | extras_of(name).tensors
    return {key: make(dims, rng) for key, make in makers.items()}
