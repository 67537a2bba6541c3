"""Specs with masks. Scores are unchanged unless a spec also modifies them."""

import numpy

from registry import spec


@spec
def noop(s, at, p, t):
    return s, True


@spec
def cross(s, at, p, t):
    return s, True


@spec
def causal(s, at, p, t):
    return s, at.q >= at.k


@spec
def causal_bottom_right(s, at, p, t):
    return s, at.q_aligned >= at.k


@spec
def inverse_causal(s, at, p, t):
    return s, at.k >= at.q


def last_keys(at, window):
    """A window of w shows w keys, including the query's own."""
    return (at.k <= at.q) & (at.k > at.q - window)


@spec
def sliding_window(s, at, p, t):
    return s, last_keys(at, p.window)


@spec
def symmetric_window(s, at, p, t):
    return s, (at.k >= at.q - p.window) & (at.k <= at.q + p.window)


@spec
def dilated_window(s, at, p, t):
    """Visible keys are at distances 0, d, 2d, .. on either side, up to the window."""
    distances = numpy.arange(0, p.window + 1, int(p.dilation))
    return s, numpy.isin(abs(at.q - at.k), distances)


@spec
def prefix_lm(s, at, p, t):
    return s, (at.k < p.prefix) | (at.k <= at.q)


@spec
def prefix_lm_batched(s, at, p, t):
    lengths = t["prefix_length"][:, None, None, None]
    return s, (at.k < lengths) | (at.k <= at.q)


@spec
def chunked(s, at, p, t):
    first_of_chunk = at.q - at.q % p.chunk
    return s, (first_of_chunk <= at.k) & (at.k <= at.q)


@spec
def chunked_padded(s, at, p, t):
    """Chunks start at the first token after the padding. Padding sees and is seen by none."""
    first = t["pad"][:, None, None, None]
    first_of_chunk = at.q - (at.q - first) % p.chunk
    return s, (at.q >= first) & (at.k >= first) & (first_of_chunk <= at.k) & (at.k <= at.q)


def same(ids, at):
    return ids[at.b, at.q] == ids[at.b, at.k]


@spec
def document(s, at, p, t):
    return s, same(t["doc"], at)


@spec
def document_causal(s, at, p, t):
    return s, same(t["doc"], at) & (at.k <= at.q)


@spec
def document_padded(s, at, p, t):
    real = t["doc"] != -1
    return s, same(t["doc"], at) & real[at.b, at.q] & real[at.b, at.k]


@spec
def document_inner(s, at, p, t):
    """A prefix language model in each segment; positions are relative to the segment's start."""
    ids, starts = t["doc"], t["offs"]
    inner = numpy.arange(ids.size) - starts[ids]
    q, k = inner[at.q], inner[at.k]
    return s, (ids[at.q] == ids[at.k]) & ((k < p.prefix) | (k <= q))


@spec
def gemma3_image(s, at, p, t):
    image = t["image"]
    return s, last_keys(at, p.window) | ((image[at.b, at.q] != -1) & same(image, at))


def windows(size, kernel):
    """[size, size]: whether x is in the window of `at`: `kernel` positions centered at `at`, shifted to
    stay within the borders."""
    seen = numpy.zeros((size, size), dtype=bool)
    for at in range(size):
        first = min(max(at - kernel // 2, 0), size - kernel)
        seen[at, first : first + kernel] = True
    return seen


def seen_in_both(at, xs, ys, in_x, in_y):
    """Whether both coordinates are visible."""
    return in_x[xs[at.q], xs[at.k]] & in_y[ys[at.q], ys[at.k]]


def pixels_by_tile(width, height, tile):
    """x and y of an image's pixels, ordered by tile, then by rows within the tile."""
    order = [
        (x, y)
        for top in range(0, height, tile)
        for left in range(0, width, tile)
        for y in range(top, top + tile)
        for x in range(left, left + tile)
    ]
    return numpy.array([x for x, _ in order]), numpy.array([y for _, y in order])


@spec
def natten_2d(s, at, p, t):
    width, height = int(p.width), int(p.height)
    ys, xs = numpy.divmod(numpy.arange(width * height), width)
    kernel = int(p.kernel)
    return s, seen_in_both(at, xs, ys, windows(width, kernel), windows(height, kernel))


@spec
def natten_tiled(s, at, p, t):
    width, height, kernel = int(p.width), int(p.height), int(p.kernel)
    xs, ys = pixels_by_tile(width, height, int(p.tile))
    return s, seen_in_both(at, xs, ys, windows(width, kernel), windows(height, kernel))


@spec
def sliding_tile_2d(s, at, p, t):
    """Windows of whole tiles."""
    width, height, kernel, tile = int(p.width), int(p.height), int(p.kernel), int(p.tile)
    xs, ys = pixels_by_tile(width, height, tile)
    in_x, in_y = windows(width // tile, kernel), windows(height // tile, kernel)
    return s, seen_in_both(at, xs // tile, ys // tile, in_x, in_y)


@spec
def longformer(s, at, p, t):
    chosen = t["is_global"]
    near = abs(at.q - at.k) <= p.window
    return s, near | chosen[at.b, at.q] | chosen[at.b, at.k]


@spec
def bigbird(s, at, p, t):
    rows = t["blocks"].repeat(int(p.block), axis=1).repeat(int(p.block), axis=2)
    return s, rows[None, :, : at.dims.Sq, : at.dims.Skv]


@spec
def block_diffusion(s, at, p, t):
    """A noised block sees itself and the clean blocks before it; clean blocks see clean blocks up to
    themselves."""
    half = at.dims.Skv // 2
    size = max(at.dims.Sq, at.dims.Skv)
    clean = numpy.arange(size) >= half
    block = (numpy.arange(size) - half * clean) // int(p.block)
    q, k = block[at.q], block[at.k]
    to_noised = ~clean[at.q] & (k == q)
    to_clean = numpy.where(clean[at.q], k <= q, k < q)
    return s, numpy.where(clean[at.k], to_clean, to_noised)


@spec
def jagged(s, at, p, t):
    visible = numpy.zeros((1, 1, at.dims.Sq, at.dims.Skv), dtype=bool)
    q, k = t["q_offs"], t["kv_offs"]
    for j in range(len(q) - 1):
        visible[:, :, q[j] : q[j + 1], k[j] : k[j + 1]] = True
    return s, visible


@spec
def batchify(s, at, p, t):
    return s, (at.q - at.q % p.length <= at.k) & (at.k <= at.q)


@spec
def shared_prefix(s, at, p, t):
    branch = t["branch"]
    return s, (at.k <= at.q) & ((branch[at.b, at.k] == 0) | same(branch, at))


def bits_of(words):
    """The bits of words of 32 bits along the last axis, the least significant ones first."""
    return numpy.unpackbits(
        numpy.ascontiguousarray(words.astype("<i4")).view(numpy.uint8), axis=-1, bitorder="little"
    ).astype(bool)


@spec
def tree_mask(s, at, p, t):
    """The last Sq keys are nodes, each with a bit in `ancestors`, least significant bit first."""
    bits = bits_of(t["ancestors"])
    visible = numpy.ones((at.dims.B, 1, at.dims.Sq, at.dims.Skv), dtype=bool)
    first = at.dims.Skv - at.dims.Sq
    for key in range(max(first, 0), at.dims.Skv):
        visible[:, 0, :, key] = bits[:, :, key - first]
    return s, visible


@spec
def tree_decode(s, at, p, t):
    """The same at the end of the keys that each batch has: node j is key j - Sq from there."""
    bits = bits_of(t["ancestors"])
    visible = numpy.ones((at.dims.B, 1, at.dims.Sq, at.dims.Skv), dtype=bool)
    for b, keys in enumerate(at.keys.ravel()):
        nodes = range(max(keys - at.dims.Sq, 0), keys)
        visible[b, 0][:, nodes] = bits[b][:, [key - keys + at.dims.Sq for key in nodes]]
    return s, visible


@spec
def multi_item(s, at, p, t):
    """The prompt, and the keys of the query's item up to the query."""
    prompt = t["prompt"][:, None, None, None]
    first_of_item = at.q - t["place"][at.b, at.q]
    return s, (at.k <= at.q) & ((at.k < prompt) | (at.k >= first_of_item))
