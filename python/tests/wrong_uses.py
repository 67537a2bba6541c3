"""Wrong uses of the package. Each function makes one mistake; golden/wrong_uses.txt has what is said."""

import contextlib
import math
import pathlib

import numpy as np
import torch
import torch.distributed as dist

import attn
import attn.torch

USES = {}
TENSORS = attn.compile("""attention small {
  dims   B, Hq, Hkv, Sq, Skv, D;
  tensor doc: i32[B, Skv];
  learn  slopes: f32[Hq];
  param  cap: f32;
  score  cap * tanh(score / cap) + slopes[h] * (kv_idx - q_idx);
  mask   doc[b, q_idx] == doc[b, kv_idx];
}
""")
CAUSAL = attn.compile("attention causal { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx >= kv_idx; }")
SIZES = {"B": 1, "Hq": 4, "Sq": 64, "D": 64}


def use(function):
    USES[function.__name__] = function
    return function


def qkv(dtype=torch.float32, device="cpu"):
    return tuple(torch.zeros(1, heads, 8, 16, dtype=dtype, device=device) for heads in (4, 2, 2))


def given(**changes):
    found = {"doc": torch.zeros(1, 8, dtype=torch.int32), "slopes": torch.zeros(4), "cap": 20.0, **changes}
    return {name: value for name, value in found.items() if value is not None}


def flex(score_mod=None, **options):
    q, _, _ = qkv()
    return attn.torch.flex_attention(q, q, q, score_mod, **options)


# --- tensors


@use
def dtype_mixed(folder):
    q, k, v = qkv()
    CAUSAL(q.bfloat16(), k, v)


@use
def dtype_of_integers(folder):
    CAUSAL(*qkv(torch.int32))


@use
def dtype_of_a_captured_tensor(folder):
    TENSORS(*qkv(), **given(doc=torch.zeros(1, 8)))


@use
def device_of_k(folder):
    q, k, v = qkv()
    CAUSAL(q, k.to("meta"), v)


@use
def device_of_a_captured_tensor(folder):
    TENSORS(*qkv(), **given(slopes=torch.zeros(4, device="meta")))


@use
def shape_without_batch(folder):
    q, k, v = qkv()
    CAUSAL(q[0], k[0], v[0])


@use
def shape_of_k_and_v(folder):
    q, k, v = qkv()
    CAUSAL(q, k, v[:, :, :5])


@use
def shape_of_heads(folder):
    q, k, v = qkv()
    CAUSAL(q[:, :3], k, v)


@use
def shape_of_rows(folder):
    q, k, v = qkv()
    CAUSAL(q[..., :8], k, v)


@use
def shape_of_batches(folder):
    q, k, v = qkv()
    CAUSAL(q.expand(3, -1, -1, -1), k, v)


@use
def shape_of_a_captured_tensor(folder):
    TENSORS(*qkv(), **given(slopes=torch.zeros(3)))


@use
def list_instead_of_a_tensor(folder):
    q, k, v = qkv()
    CAUSAL(q, k.tolist(), v)


@use
def tensor_missing(folder):
    TENSORS(*qkv(), **given(doc=None))


@use
def tensor_unknown(folder):
    TENSORS(*qkv(), **given(document=torch.zeros(1, 8)))


@use
def tensor_twice(folder):
    q, k, v = qkv()
    CAUSAL(q, k, v, k=k)


@use
def tensor_too_many(folder):
    CAUSAL(*qkv(), torch.zeros(4))


@use
def number_for_a_tensor(folder):
    TENSORS(*qkv(), **given(slopes=0.5))


@use
def param_missing(folder):
    TENSORS(*qkv(), **given(cap=None))


@use
def param_of_text(folder):
    TENSORS(*qkv(), **given(cap="large"))


@use
def second_derivative(folder):
    q, k, v = (x.requires_grad_() for x in qkv())
    (dq,) = torch.autograd.grad(CAUSAL(q, k, v).sum(), q, create_graph=True)
    dq.sum().backward()


@use
def grouped_heads_without_saying_so(folder):
    attn.torch.flex_attention(*qkv())


@use
def mask_given_twice(folder):
    from torch.nn.attention.flex_attention import create_block_mask

    def causal(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    flex(block_mask=create_block_mask(causal, 1, 1, 8, 8, device="cpu"), mask_mod=causal)


@use
def dropout_of_everything(folder):
    flex(dropout_p=1.0)


@use
def heads_of_another_spec(folder):
    q, k, v = qkv()
    attn.compile("causal")(q, k, v)


@use
def heads_and_rows_exchanged(folder):
    q, k, v = (x.transpose(1, 2) for x in qkv())
    attn.compile("attention x { dims B, Hq, Hkv, Sq, D; }")(q, k, v)


@use
def layout_of_another_name(folder):
    CAUSAL(*qkv(), layout="sbhd")


@use
def layout_of_packed_sequences(folder):
    attn.compile("thd")(*qkv(), layout="bshd")


@use
def offsets_that_fall(folder):
    q = torch.zeros(8, 4, 16)
    f = attn.compile("thd", B=2, Hq=4, Hkv=4, Sq=8, D=16)
    f(q, q, q, cu_seqlens_q=torch.tensor([0, 9, 8]).int(), cu_seqlens_kv=torch.tensor([0, 4, 8]).int())


@use
def array_of_long_doubles(folder):
    q = np.zeros((1, 2, 8, 16), dtype=np.longdouble)
    CAUSAL(q, q, q)


@use
def argument_is_causal(folder):
    attn.compile("noop", is_causal=True)


@use
def argument_attn_mask(folder):
    CAUSAL(*qkv(), attn_mask=torch.ones(8, 8))


@use
def argument_of_another_function(folder):
    flex(is_causal=True)


@use
def gradient_of_max(folder):
    q, k, v = (x.requires_grad_() for x in qkv())
    _, largest = attn.compile("attention f { dims B, Hq, Hkv, Sq, D; outputs o, max; }")(q, k, v)
    largest.sum().backward()


@use
def block_that_is_listed_twice(folder):
    from torch.nn.attention.flex_attention import BlockMask

    counts = torch.full((1, 1, 2), 2, dtype=torch.int32)
    indices = torch.tensor([[[[0, 0], [1, 0]]]], dtype=torch.int32)
    q = torch.zeros(1, 4, 8, 16)
    attn.torch.flex_attention(q, q, q, block_mask=BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=4))


@use
def function_as_block_mask(folder):
    flex(block_mask=lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)


@use
def lse_by_both_names(folder):
    from torch.nn.attention.flex_attention import AuxRequest

    flex(return_lse=True, return_aux=AuxRequest(lse=True))


@use
def block_mask_of_another_length(folder):
    from torch.nn.attention.flex_attention import create_block_mask, noop_mask

    flex(block_mask=create_block_mask(noop_mask, 1, 1, 16, 16, device="cpu"))


# --- functions


@use
def mod_with_a_branch(folder):
    def mod(score, b, h, q_idx, kv_idx):
        if q_idx >= kv_idx:
            return score
        return -math.inf

    flex(mod)


@use
def mod_that_reads_a_value(folder):
    def mod(score, b, h, q_idx, kv_idx):
        return score * q_idx.item()

    flex(mod)


@use
def mod_with_a_loop(folder):
    def mod(score, b, h, q_idx, kv_idx):
        for i in range(kv_idx):
            score = score + i
        return score

    flex(mod)


@use
def mod_with_an_unknown_function(folder):
    def mod(score, b, h, q_idx, kv_idx):
        return torch.fft.fft(score)

    flex(mod)


@use
def mod_that_changes_a_tensor(folder):
    counts = torch.zeros(8)

    def mod(score, b, h, q_idx, kv_idx):
        counts[q_idx] += 1
        return score

    flex(mod)


@use
def mod_with_a_negative_index(folder):
    table = torch.zeros(16)
    flex(lambda score, b, h, q_idx, kv_idx: score + table[q_idx - kv_idx])


@use
def mod_with_a_negative_index_by_value(folder):
    table, doc = torch.zeros(16), torch.arange(8)
    flex(lambda score, b, h, q_idx, kv_idx: score + table[doc[q_idx] - 3])


@use
def mod_with_a_large_index(folder):
    table = torch.zeros(4, 8)

    def mod(score, b, h, q_idx, kv_idx):
        return score + table[h, q_idx + kv_idx]

    flex(mod)


@use
def mod_with_wrong_parameters(folder):
    flex(lambda score, q_idx, kv_idx: score)


@use
def score_mod_that_is_a_mask(folder):
    def mod(score, b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    flex(mod)


@use
def mask_mod_that_is_a_score(folder):
    def mod(b, h, q_idx, kv_idx):
        return q_idx - kv_idx

    flex(mask_mod=mod)


@use
def mod_that_is_a_tensor(folder):
    flex(torch.zeros(4, 8, 8))


@use
def mod_without_result(folder):
    def mod(score, b, h, q_idx, kv_idx):
        score * 2

    flex(mod)


# --- compiling


@use
def spec_with_a_typo(folder):
    attn.compile("attention x {\n  dims B, Hq, Sq, D;\n  mask windw(3);\n}")


@use
def spec_that_is_not_there(folder):
    attn.compile("gemma2_locl")


@use
def size_unknown(folder):
    attn.compile("gemma2_local", Seq=4096)


@use
def size_missing(folder):
    attn.compile(CAUSAL.spec, target="h200", B=1, Sq=64)


@use
def size_missing_for_functions(folder):
    attn.compile(mask_mod=lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, B=1)


@use
def target_unknown(folder):
    attn.compile("gemma2_local", target="h300", B=1, Sq=64)


@use
def engine_unknown(folder):
    attn.compile("gemma2_local", engine="flash")


@use
def engine_of_others(folder):
    attn.compile("gemma2_local", engine="flash_attention")


@use
def target_of_others(folder):
    attn.compile("gemma2_local", target="cuda", B=1, Sq=64)


@use
def param_at_compile_time(folder):
    attn.compile("temperature", temperature=2.0)


@use
def engine_that_cannot(folder):
    attn.compile("mla_latent", target="a100", engine="native", B=1, Skv=64)


@use
def warm_without_sizes(folder):
    CAUSAL.warm(Sq=64, device="cuda:0")


# --- plan files


def plan(folder):
    path = pathlib.Path(folder) / "x.attnplan"
    attn.compile("causal", target="h200", engine="native", Hkv=4, **SIZES).save(path)
    return path


@use
def plan_that_was_never_compiled(folder):
    CAUSAL.save(pathlib.Path(folder) / "x.attnplan")


@use
def plan_file_missing(folder):
    attn.load(pathlib.Path(folder) / "none.attnplan")


@use
def plan_file_damaged(folder):
    path = plan(folder)
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)
    attn.load(path)


@use
def plan_file_truncated(folder):
    path = plan(folder)
    path.write_bytes(path.read_bytes()[:-100])
    attn.load(path)


@use
def plan_file_of_something_else(folder):
    path = pathlib.Path(folder) / "x.attnplan"
    path.write_bytes(np.zeros(1000).tobytes())
    attn.load(path)


@use
def plan_file_that_is_a_spec(folder):
    path = pathlib.Path(folder) / "x.attn"
    path.write_text("attention x { dims B, Hq, Sq, D; }")
    attn.load(path)


# --- sizes that explain and draw need


@use
def explain_without_sizes(folder):
    attn.compile("attention x { dims B, Hq, Sq, D = 64; }").explain()


@use
def draw_without_sizes(folder):
    attn.compile("attention x { dims B, Hq, Sq, D = 64; }").draw(B=1)


# --- several GPUs


@contextlib.contextmanager
def group():
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def distributed(attention="attention x { dims B, Hq, Hkv, Sq, D; tensor doc: i32[B, Skv]; "
                "mask doc[b, q_idx] == doc[b, kv_idx]; }", **options):
    return attn.torch.distribute(attention, **{"B": 1, "Hq": 4, "Hkv": 2, "Sq": 8, "D": 16, **options})


@use
def distributed_without_a_group(folder):
    distributed()


@use
def distributed_over_something_else(folder):
    with group():
        distributed(group="gloo")


@use
def distributed_over_a_mesh_of_two_dimensions(folder):
    with group():
        distributed(group=dist.device_mesh.init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "context")))


@use
def distributed_without_sizes(folder):
    with group():
        attn.torch.distribute(CAUSAL, B=1, Hq=4)


@use
def distributed_in_another_dtype(folder):
    with group():
        distributed(dtype="e4m3")


@use
def distributed_on_another_device(folder):
    with group():
        distributed(device="meta")


@use
def distributed_packed_sequences(folder):
    with group():
        distributed("thd")


@use
def distributed_for_values_of_nothing(folder):
    with group():
        distributed(values={"documents": torch.zeros(1, 8)})


@use
def distributed_for_other_values(folder):
    with group():
        doc = torch.zeros(1, 8, dtype=torch.int32)
        distributed(values={"doc": doc})(*qkv(), doc=doc + 1)


@use
def distributed_rows_of_another_rank(folder):
    with group():
        q, k, v = qkv()
        distributed()(q[:, :, :4], k, v, doc=torch.zeros(1, 8, dtype=torch.int32))


@use
def distributed_training_without_a_backward(folder):
    with group():
        q, k, v = qkv()
        distributed(training=False)(q.requires_grad_(), k, v, doc=torch.zeros(1, 8, dtype=torch.int32))


@use
def distributed_shard_of_another_dimension(folder):
    with group():
        distributed().shard(qkv()[0], dim=1)


@use
def distributed_shard_of_nothing(folder):
    with group():
        distributed().shard(qkv()[0], of="heads")


@use
def distributed_after_closing(folder):
    with group():
        sharded = distributed()
        sharded.close()
        sharded(*qkv(), doc=torch.zeros(1, 8, dtype=torch.int32))


@use
def distributed_plan_on_the_cpu(folder):
    with group():
        attn.torch.load_distributed(pathlib.Path(folder) / "x.attnplan")


@use
def distributed_saved_on_the_cpu(folder):
    with group():
        distributed().save(pathlib.Path(folder) / "x.attnplan")
