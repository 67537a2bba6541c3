"""Checks of attentions on several GPUs, one process for each:

    python python/tests/rank_specs.py FOLDER                       # plans and expected results, anywhere
    torchrun --nproc-per-node 2 python/tests/ranks_on_gpus.py FOLDER [CHECK ..]

Prints `ok NAME` or `FAILED NAME: why`, of each rank that failed, for each check, on rank 0. Each check has a
process group of its own, so that one may break it. test_ranks_gpu.py starts this.
"""

import datetime
import os
import pathlib
import signal
import sys
import time
import traceback

import rank_specs
import torch
import torch.distributed as dist

import attn
import attn.torch

TOLERANCE = 2e-2  # relative L2 of bf16 tensors
AGAIN = 1e-2  # of gradients that are computed again: they are summed in no fixed order
TIMEOUT = 10  # seconds that a rank may not answer
SOON = 30  # seconds in which others must know
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


class Here:
    """This rank, and what checks need."""

    def __init__(self, folder):
        self.folder = folder
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.group = None

    def load(self, name, **options):
        options = {"timeout_seconds": TIMEOUT, **options}
        return attn.torch.load_distributed(self.folder / f"{name}.attnplan", options.pop("group", self.group), **options)


def difference(x, y):
    """Relative L2; rows that see nothing have -inf."""
    x, y = x.detach().double(), y.detach().double().to(x.device)
    same = (x == y) & y.isinf()
    x, y = torch.where(same, 0.0, x), torch.where(same, 0.0, y)
    found = (x - y).norm() / y.norm().clamp_min(1e-3 * y.numel() ** 0.5)
    return float("inf") if found.isnan() else found.item()


def close(what, x, y, tolerance=TOLERANCE):
    found = difference(x, y)
    assert found <= tolerance, f"{what} differs by {found:.2e}"


def refused(kind, message, call):
    """The error that the call raises."""
    try:
        call()
    except attn.Error as error:
        assert isinstance(error, kind) and message in str(error), f"{type(error).__name__}: {error}"
        return error
    raise AssertionError(f"nothing was raised, instead of {kind.__name__}: {message}")


def run_spec(here, name, layout="bhsd"):
    """Compares this rank's outputs and gradients with the reference's."""
    spec, sizes = rank_specs.attention_of(name)
    said = spec.described(sizes)
    tensors, given = rank_specs.inputs_of(name)
    expected = torch.load(here.folder / f"{name}.pt")
    sharded = here.load(name)

    def home(key, tensor):
        of = "keys" if key in "kv" else "rows"
        part = sharded.shard(tensor.to(here.device), of=of)
        return part.transpose(1, 2).contiguous().transpose(1, 2) if layout == "bshd" else part.contiguous()

    leaves = {key: home(key, tensors[key]).requires_grad_() for key in "qkv"}
    for key, value in given.items():
        leaves[key] = value.to(here.device) if isinstance(value, torch.Tensor) else value
        if key in said.learned:
            leaves[key].requires_grad_()
    outputs = sharded(**leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    wanted = {key: x for key, x in leaves.items() if isinstance(x, torch.Tensor) and x.requires_grad}
    cotangents = {key: home(key, tensors[key]) for key in ("do", "dlse") if key in tensors}
    reached, of_outputs = rank_specs.of_loss(outputs, said.outputs, cotangents)
    gradients = torch.autograd.grad(reached, list(wanted.values()), of_outputs)
    sharded.synchronize()
    for key, x in zip(said.outputs, outputs):
        close(key, x, sharded.shard(expected["outputs"][key].to(here.device), of="rows"))
    for key, x in zip(wanted, gradients):
        whole = expected["gradients"][key].to(here.device)
        if key in "qkv":
            whole = sharded.shard(whole, of="rows" if key == "q" else "keys")
        close(f"d{key}", x, whole)
    with torch.no_grad():
        again = sharded(**leaves)
    again = again if isinstance(again, tuple) else (again,)
    for key, x, y in zip(said.outputs, again, outputs):
        assert torch.equal(x, y), f"{key} of a second call differs"
    sharded.close()


for each in rank_specs.SPECS:
    CHECKS[f"spec_{each}"] = lambda here, name=each: run_spec(here, name)


@check
def layouts(here):
    """Tensors in the order of the plans' memory, which may be sent as they are."""
    for name in ("causal_sequence", "causal_heads", "documents"):
        run_spec(here, name, "bshd")


@check
def strides_that_change(here):
    """One object, tensors of other strides and other addresses, and a side stream."""
    sharded = here.load("causal_sequence")
    torch.manual_seed(here.rank)
    q = torch.randn(2, 4, len(sharded.rows), 64, device=here.device, dtype=torch.bfloat16)
    k = torch.randn(2, 2, len(sharded.keys), 64, device=here.device, dtype=torch.bfloat16)
    expected, _ = sharded(q, k, k)
    wide = torch.randn(2, len(sharded.rows), 4, 128, device=here.device, dtype=torch.bfloat16)
    wide[..., :64] = q.transpose(1, 2)
    o, _ = sharded(wide[..., :64].transpose(1, 2), k.clone(), k.transpose(1, 2).contiguous().transpose(1, 2))
    assert torch.equal(o, expected)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        on_side, _ = sharded(q.clone(), k, k)
    again, _ = sharded(q, k, k)
    torch.cuda.synchronize()
    assert torch.equal(on_side, expected) and torch.equal(again, expected)


@check
def training(here):
    """20 steps of a small model, beside the same on one GPU."""
    whole = attn.load(here.folder / "training_whole.attnplan")
    sharded = here.load("training")
    tokens, width = 512, 256

    def train(attention, rows, summed):
        torch.manual_seed(0)
        x = torch.randn(1, tokens, width, device=here.device, dtype=torch.bfloat16)[:, rows]
        target = torch.randn(1, tokens, width, device=here.device)[:, rows]
        weights = [(torch.randn(width, count, device=here.device) / 16).requires_grad_() for count in (256, 128, 128, 256)]
        optimizer = torch.optim.AdamW(weights, lr=3e-3)
        losses = []
        for _ in range(20):
            q, k, v = ((x @ w.bfloat16()).unflatten(-1, (-1, 64)).transpose(1, 2) for w in weights[:3])
            o, _ = attention(q, k, v)
            y = o.transpose(1, 2).flatten(2) @ weights[3].bfloat16()
            loss = (y.float() - target).square().sum() / tokens / width
            optimizer.zero_grad()
            loss.backward()
            if summed:
                loss = loss.detach().clone()
                for tensor in (loss, *(w.grad for w in weights)):
                    dist.all_reduce(tensor, group=here.group)
            optimizer.step()
            losses.append(loss.item())
        sharded.synchronize()
        return losses

    alone = train(whole, slice(None), False)
    divided = train(sharded, sharded.rows, True)
    assert alone[-1] < 0.97 * alone[0], alone
    for step, (x, y) in enumerate(zip(alone, divided)):
        assert abs(x - y) <= 2e-3 * abs(x), f"step {step}: a loss of {y} instead of {x}"


@check
def cuda_graph(here, name="causal_sequence"):
    """Forward and backward, replayed with other values, of two graphs."""
    sharded = here.load(name)
    sizes = sharded.sizes
    differences = {}  # found on one rank, while the other ones go on

    def make():
        shapes = [(sizes.B, heads, len(of), 64)
                  for heads, of in ((sizes.Hq, sharded.rows), *[(sizes.Hkv, sharded.keys)] * 2)]
        q, k, v = (torch.randn(shape, device=here.device, dtype=torch.bfloat16) for shape in shapes)
        return q, k, v, torch.randn_like(q)

    def run(q, k, v, d_o):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        o, lse = sharded(*leaves)
        return (o.detach(), lse, *torch.autograd.grad(o, leaves, d_o))

    def capture(static):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run(*static)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        dist.barrier(here.group)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            results = run(*static)
        return graph, static, results

    graphs = [capture(make()) for _ in range(2)]
    for turn in range(6):
        graph, static, results = graphs[turn % 2]
        values = make()
        for x, y in zip(static, values):
            x.copy_(y)
        graph.replay()
        torch.cuda.synchronize()
        for name, x, y in zip(("o", "lse", "dq", "dk", "dv"), results, run(*values)):
            differences[name] = max(difference(x, y), differences.get(name, 0))
    sharded.synchronize()
    for name, found in differences.items():
        assert found <= (AGAIN if name[0] == "d" else 0), f"{name} of a replay differs: {differences}"


@check
def cuda_graph_of_large_tensors(here):
    """They are of more than one segment of PyTorch's, if segments expand."""
    cuda_graph(here, "large")


@check
def expandable_segments(here):
    """Exchanges of such memory are not captured, because NCCL would hang."""
    sharded = here.load("causal_sequence")
    execute(here, sharded)
    graph = torch.cuda.CUDAGraph()

    def capture():
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            execute(here, sharded)

    refused(attn.UnsupportedError, "NCCL_GRAPH_REGISTER=0", capture)
    execute(here, sharded)


@check
def torch_compile(here):
    sharded = here.load("causal_sequence")
    q, k, v = (torch.randn(2, h, len(sharded.rows), 64, device=here.device, dtype=torch.bfloat16) for h in (4, 2, 2))

    def layer(q, k, v):
        o, lse = sharded(q * 2, k, v)
        return o * 2, lse

    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    found = []
    for function in (layer, compiled):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        o, lse = function(*leaves)
        found.append((o, lse, *torch.autograd.grad(o.float().square().sum(), leaves)))
    for x, y in zip(*found):
        close("a compiled tensor", x, y, AGAIN)


@check
def compiled_here(here):
    """Plans that rank 0 compiles, kept for calls of the same sizes, with autocast, in f16, for values."""
    sizes = {"B": 1, "Hq": 2, "Hkv": 2, "Sq": 256, "D": 64}
    f = attn.compile("attention f { dims B, Hq, Hkv, Sq, D; tensor doc: i32[B, Skv]; "
                     "mask doc[b, q_idx] == doc[b, kv_idx] && q_idx >= kv_idx; }")
    doc = (torch.arange(256, device=here.device) // 100).int()[None]
    sharded = attn.torch.distribute(f, here.group, dtype="f16", values={"doc": doc}, **sizes)
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 2, 256, 64, device=here.device) for _ in "qkv")
    with torch.autocast("cuda", torch.float16):
        o = sharded(*(sharded.shard(x) for x in (q, k, v)))
    visible = (doc[0][:, None] == doc[0]).tril()
    dense = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=visible)
    close("o", o, sharded.shard(dense), 5e-3)
    close("unsharded o", sharded.unshard(o), dense, 5e-3)
    plain = attn.torch.distribute(f, here.group, training=False, **sizes)
    assert attn.torch.distribute(f, here.group, training=False, **sizes) is plain
    o = plain(*(plain.shard(x.bfloat16()) for x in (q, k, v)), doc=doc)
    close("o", o, plain.shard(dense))
    refused(attn.UnsupportedError, "for forwards alone",
            lambda: plain(*(plain.shard(x.bfloat16()).requires_grad_() for x in (q, k, v)), doc=doc))
    path = here.folder / f"saved{here.rank}.attnplan"
    plain.save(path)
    again = attn.torch.load_distributed(path, here.group)
    assert torch.equal(again(*(again.shard(x.bfloat16()) for x in (q, k, v)), doc=doc), o)


@check
def wrong_uses(here):
    sharded = here.load("causal_sequence")
    q, k, v = (torch.randn(2, h, 520, 64, device=here.device, dtype=torch.bfloat16) for h in (4, 2, 2))
    refused(attn.BindingError, "sharded.shard(q) picks them", lambda: sharded(q, k, v))
    parts = [sharded.shard(x) for x in (q, k, v)]
    refused(attn.BindingError, "q is torch.float16", lambda: sharded(*(x.half() for x in parts)))
    refused(attn.BindingError, "on cpu", lambda: sharded(*(x.cpu() for x in parts)))
    refused(attn.ArgumentError, "is for 4 GPUs, and the group has 2", lambda: here.load("four_ranks"))
    refused(attn.ArgumentError, "the plan of one GPU", lambda: here.load("training_whole"))
    alone = [dist.new_group([rank], backend="nccl") for rank in range(here.ranks)][here.rank]
    refused(attn.ArgumentError, "is for 2 GPUs, and the group has 1", lambda: here.load("causal", group=alone))
    o, _ = sharded(*parts)
    sharded.synchronize()
    assert o.isfinite().all()


@check
def communicator_of_another_size(here):
    """What the library says, below the package's own check."""
    from attn import _distributed, _libattn

    contents = (here.folder / "four_ranks.attnplan").read_bytes()
    communicator = attn.torch.group.Group(here.group, None, TIMEOUT).communicator()
    error = refused(attn.ArgumentError, "", lambda: _distributed.Distributed(
        _libattn.runtime(here.device.index), contents, communicator, timeout_seconds=TIMEOUT))
    print(f"rank {here.rank}: {error}", flush=True)
    here.load("causal_sequence")  # the communicator still works


@check
def different_files(here):
    name = "causal_sequence" if here.rank == 0 else "causal_heads"
    error = refused(attn.Error, "", lambda: here.load(name))
    print(f"rank {here.rank}: {type(error).__name__}: {error}", flush=True)
    assert error.status == "mismatch", error.status
    here.load("causal_sequence")


@check
def memory_of_one_rank(here):
    """All ranks are told that one has not enough memory, and can go on when it has."""
    group = attn.torch.group.Group(here.group, None, TIMEOUT)
    group.communicator()
    fill = []
    if here.rank == 1:
        for size in (1 << 30, 1 << 26, 1 << 21, 1 << 16):
            try:
                while True:
                    fill.append(torch.empty(size, dtype=torch.uint8, device=here.device))
            except torch.OutOfMemoryError:
                pass
    error = refused(attn.Error, "", lambda: here.load("large"))
    print(f"rank {here.rank}: {type(error).__name__}: {error}", flush=True)
    assert isinstance(error, attn.CudaError), error
    assert here.rank == 1 or "rank 1" in str(error)
    fill.clear()
    torch.cuda.empty_cache()
    dist.barrier(here.group)
    here.load("large").close()


def execute(here, sharded):
    shapes = [(2, heads, len(sharded.rows), 64) for heads in (4, 2, 2)]
    sharded(*(torch.randn(shape, device=here.device, dtype=torch.bfloat16) for shape in shapes))
    sharded.synchronize()


def executes_until_it_fails(here, sharded):
    """The error and the time."""
    begin = time.monotonic()
    try:
        while time.monotonic() - begin < 2 * SOON:
            execute(here, sharded)
            time.sleep(0.05)
    except attn.Error as error:
        return error, time.monotonic() - begin
    return None, time.monotonic() - begin


def check_lost(here, error, seconds):
    print(f"rank {here.rank}: after {seconds:.1f} s: {type(error).__name__}: {error}", flush=True)
    assert isinstance(error, attn.NcclError), error
    assert seconds < SOON, f"it took {seconds:.1f} s"


@check
def rank_that_is_late(here):
    """Both ranks are told that an execute took too long; neither hangs."""
    sharded = here.load("causal_sequence")
    execute(here, sharded)
    if here.rank == 1:
        time.sleep(TIMEOUT + 5)
    error, seconds = executes_until_it_fails(here, sharded)
    check_lost(here, error, seconds)
    refused(attn.NcclError, "", sharded.synchronize)


@check
def call_that_fails_on_one_rank(here):
    """Before it exchanges, and caught: no other call exchanges with it, and both ranks are told at once."""
    sharded = here.load("causal_sequence", timeout_seconds=None)
    execute(here, sharded)
    if here.rank == 1:
        usual = sharded._how.empty_like

        def fails(*args):
            sharded._how.empty_like = usual
            raise torch.OutOfMemoryError("no memory")

        sharded._how.empty_like = fails
        try:
            execute(here, sharded)
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("it did not fail")
    error, seconds = executes_until_it_fails(here, sharded)
    check_lost(here, error, seconds)
    assert "failed on rank 1 alone: OutOfMemoryError: no memory" in str(error), error


def loses_rank_1(here, **options):
    """An attention whose rank 1 was killed, and the error of rank 0."""
    sharded = here.load("causal_sequence", **options)
    for _ in range(5):
        execute(here, sharded)
    if here.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error, seconds = executes_until_it_fails(here, sharded)
    check_lost(here, error, seconds)
    return sharded, error


# Checks that need a start of their own: rank 1 dies, and rank 0 exits cleanly, in whatever order it ends things
# while another thread may still abort the communicator.


@check
def rank_that_is_killed(here):
    sharded, _ = loses_rank_1(here)
    sharded.close()


@check
def rank_that_is_killed_where_others_may_be_slow(here):
    """As long as the group's own timeout."""
    sharded, error = loses_rank_1(here, timeout_seconds=None)
    assert "rank 1 is lost" in str(error), error
    sharded.close()


@check
def rank_that_ends_well(here):
    """A call that it does not make is given up at once."""
    sharded = here.load("causal_sequence", timeout_seconds=None)
    for _ in range(5):
        execute(here, sharded)
    if here.rank == 1:
        sys.exit(5)
    error, seconds = executes_until_it_fails(here, sharded)
    check_lost(here, error, seconds)
    assert "rank 1 is lost: it has ended after call 5" in str(error), error
    assert seconds < 15, f"it took {seconds:.1f} s"
    sharded.close()


@check
def nothing_is_closed(here):
    """The error lives until Python ends, and its traceback refers to everything."""
    LEFT.append(loses_rank_1(here))


@check
def group_that_is_destroyed_first(here):
    sharded, _ = loses_rank_1(here)
    dist.destroy_process_group(here.group)
    sharded.close()


@check
def rank_that_exits_in_a_backward(here):
    """As if the other rank raised an error between a forward and its backward."""
    sharded = here.load("causal_sequence")
    leaves = [torch.randn(2, h, len(sharded.rows), 64, device=here.device, dtype=torch.bfloat16).requires_grad_()
              for h in (4, 2, 2)]
    o, _ = sharded(*leaves)
    sharded.synchronize()
    if here.rank == 1:
        os._exit(3)
    begin = time.monotonic()

    def backward():
        torch.autograd.grad(o, leaves, torch.ones_like(o))
        sharded.synchronize()

    error = refused(attn.Error, "", backward)
    check_lost(here, error, time.monotonic() - begin)
    sharded.close()


ALONE = ("rank_that_is_killed", "rank_that_is_killed_where_others_may_be_slow", "rank_that_ends_well",
         "nothing_is_closed",
         "group_that_is_destroyed_first", "rank_that_exits_in_a_backward")
APART = ("expandable_segments",)  # with an environment of its own
LEFT = []


def agreed(control, outcome):
    """The outcomes of all ranks."""
    outcomes = [None] * dist.get_world_size()
    dist.all_gather_object(outcomes, outcome, control)
    return [text for text in outcomes if text]


def main():
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    here = Here(folder)
    alone = len(names) == 1 and names[0] in ALONE
    failures = 0
    for name in names or [name for name in CHECKS if name not in (*ALONE, *APART)]:
        here.group = dist.new_group(backend="nccl", timeout=datetime.timedelta(seconds=90))
        begin, outcome = time.monotonic(), ""
        try:
            CHECKS[name](here)
        except Exception as error:
            text = " / ".join(str(error).splitlines())  # of all ranks in one line
            outcome = f"rank {here.rank}: {type(error).__name__}: {text}"
            traceback.print_exc()
        outcomes = [outcome] if alone and outcome else [] if alone else agreed(None, outcome)
        if here.rank == 0:
            took = f"{time.monotonic() - begin:.1f} s"
            print(f"FAILED {name}: {' | '.join(outcomes)}" if outcomes else f"ok {name} ({took})", flush=True)
        failures += bool(outcomes)
    if not alone:
        dist.destroy_process_group()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
