"""Masks and scores for `VarlenAttention`: as specs and as mods, and what they must give: dense, in float64."""

import torch

PARTS = "dims B, Hq, Hkv, Sq, Skv, D;"  # of all specs here

SPECS = {
    "chunks": "attention chunks(chunk = 24) { %s mask q_idx >= kv_idx && q_idx // chunk == kv_idx // chunk; }",
    "prefix": "attention prefix { %s tensor prefix: i32[B]; mask q_idx >= kv_idx || kv_idx < prefix[b]; }",
    "distance": "attention distance { %s scale 0.2; param t: f32; tensor slopes: f32[Hq]; mask q_idx >= kv_idx;"
                " score t * score - slopes[h] * log(1.0 + abs(q_idx - kv_idx)); sink 0.5 * h; }",
    "dilated": "attention dilated { %s mask q_idx >= kv_idx && (q_idx - kv_idx) %% 3 == 0; }",
    "tree": "attention tree { %s tensor ancestors: i32[B, 8];"
            " let node = kv_idx - (q_idx - q_raw);"
            " mask node < 0 || (ancestors[b, q_raw %% 8] >> clamp(node, 0, 31) & 1) == 1; }",
}
SPECS = {name: text % PARTS for name, text in SPECS.items()}
BANDS = ("chunks", "prefix", "distance")  # what takes a schedule
LAST_KEYS = ("tree",)  # what takes one where plans have more keys than rows


def inputs_of(name, batch):
    """The tensors and params of a spec for a batch, on its device."""
    heads = batch.q.shape[1]
    made = {
        "prefix": {"prefix": torch.tensor([batch.choose.randint(0, 60) for _ in batch.keys], dtype=torch.int32)},
        "distance": {"slopes": torch.linspace(0, 1, heads), "t": 0.7},
        "tree": {"ancestors": torch.tensor([[batch.choose.randrange(256) | 1 << row for row in range(8)]
                                            for _ in batch.keys], dtype=torch.int32)},
    }.get(name, {})
    return {key: value.to(batch.device) if isinstance(value, torch.Tensor) else value for key, value in made.items()}


def expected(name, batch, inputs):
    """o and lse of a batch, float64; `name`: of a spec, or what gives scores, who is seen, and a sink."""
    rule = RULES.get(name, name)
    inputs = {key: value.cpu() if isinstance(value, torch.Tensor) else value for key, value in inputs.items()}
    outputs = []
    for b, (q, k, v) in enumerate(zip(batch.q.split(batch.rows), batch.k, batch.v)):
        rows, keys, heads = len(q), len(k), q.shape[1]
        k, v = (x.double().repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
        h, raw, kv = torch.arange(heads)[:, None, None], torch.arange(rows)[:, None], torch.arange(keys)
        products = torch.einsum("qhd,khd->hqk", q.double(), k)
        s, seen, sink = rule(products, q.shape[2] ** -0.5, b, h, raw, raw + keys - rows, kv, inputs)
        s = s.masked_fill(~seen.expand_as(s), -torch.inf)
        lse = torch.logaddexp(torch.logsumexp(s, -1), sink.double().expand(heads, rows))
        weights = torch.exp(s - lse[..., None]).nan_to_num(0.0)
        outputs.append((torch.einsum("hqk,khd->qhd", weights, v), lse.t()))
    return tuple(torch.cat(parts) for parts in zip(*outputs))


NONE = torch.tensor(-torch.inf)  # no sink


def _chunks(s, scale, b, h, raw, q, kv, inputs):
    return s * scale, (q >= kv) & (q // 24 == kv // 24), NONE


def _prefix(s, scale, b, h, raw, q, kv, inputs):
    return s * scale, (q >= kv) | (kv < inputs["prefix"][b]), NONE


def _distance(s, scale, b, h, raw, q, kv, inputs):
    scores = inputs["t"] * 0.2 * s - inputs["slopes"].double()[h] * torch.log(1.0 + (q - kv).abs())
    return scores, q >= kv, 0.5 * h[:, :, 0]


def _dilated(s, scale, b, h, raw, q, kv, inputs):
    return s * scale, (q >= kv) & ((q - kv) % 3 == 0), NONE


def _tree(s, scale, b, h, raw, q, kv, inputs):
    node = kv - (q - raw)
    return s * scale, (node < 0) | (inputs["ancestors"][b][raw % 8] >> node.clamp(0, 31) & 1 == 1), NONE


RULES = {"chunks": _chunks, "prefix": _prefix, "distance": _distance, "dilated": _dilated, "tree": _tree}
