"""One of the processes of ranks.py, with one GPU: measures what it is told, and writes a line for each."""
import argparse
import json
import os
import pathlib
import statistics

import ranks_plans
import ranks_schemes
import torch
import torch.distributed as dist

import attn
import attn.torch

PAUSE = 10_000_000  # clocks of the device, which hide the host's time
MOST_RUNS, FEWEST_RUNS = 9, 3
LONG = 2000  # ms, of which one run is enough
WARMED = 131072  # rows, at most: the first run of a scheme may take seconds longer, which would be LONG
LONGEST = 8  # kernels of a rank that are told


class Whole:
    """One GPU computes everything, as a user of attnc would."""

    def __init__(self, case, folder, device, values):
        (plan,) = ranks_plans.plans_of(case, "one")
        self.pair = ranks_schemes.load(ranks_plans.read(folder, plan), device)
        self.own = torch.arange(case.size, device=device)
        self.values = values

    def forward(self, q, k, v):
        given = {"q": q, "k": k, "v": v, **self.values}
        self.saved = {**given, **self.pair.run_forward(given, {})}
        return self.saved["o"]

    def backward(self, d_o):
        found = self.pair.run_backward({**self.saved, "do": d_o}, {})
        return tuple(found[name] for name in "qkv")


class Divided:
    def __init__(self, case, folder, device, values):
        (plan,) = ranks_plans.plans_of(case, "divided")
        ranks_plans.read(folder, plan)
        self.sharded = attn.torch.load_distributed(folder / f"{plan.name}.attnplan", timeout_seconds=60)
        self.own, self.values = self.sharded.rows, values

    def forward(self, q, k, v):
        self.inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        self.o, _ = self.sharded(*self.inputs, **self.values)
        return self.o.detach()

    def backward(self, d_o):
        return torch.autograd.grad(self.o, self.inputs, d_o, retain_graph=True)

    def about(self):
        return {"sharding": self.sharded.sharding, "device_bytes": self.sharded.device_bytes}

    def close(self):
        self.sharded.synchronize()
        self.sharded.close()


SCHEMES = {"one": Whole, "divided": Divided, **ranks_schemes.SCHEMES}


class Bench:
    """The inputs of one case at a time, and the whole's results, which others are compared with."""

    def __init__(self, options, device):
        self.options, self.device = options, device
        self.case = None
        self.warm = set()  # schemes and directions that have run

    def begin(self, case):
        if case == self.case:
            return
        self.case, self.tensors, self.expected = case, None, {}
        torch.cuda.empty_cache()
        torch.manual_seed(0)

        def tensor(heads):
            made = torch.randn(1, case.size, heads, case.depth, dtype=torch.bfloat16, device=self.device)
            return made.transpose(1, 2)

        self.tensors = {"q": tensor(case.heads), "k": tensor(case.key_heads), "v": tensor(case.key_heads),
                        "do": tensor(case.heads)}
        self.values = {name: torch.from_numpy(array).to(self.device)
                       for name, array in ranks_plans.values_of(case).items()}

    def measure(self, case, scheme):
        """A row for the forward, and one for the backward."""
        self.begin(case)
        made = SCHEMES[scheme](case, self.options.plans, self.device, self.values)
        given = {name: tensor if scheme == "one" else own_rows(tensor, made.own)
                 for name, tensor in self.tensors.items()}
        about = made.about() if hasattr(made, "about") else {}
        q, k, v, d_o = given.values()
        runs = {"fwd": lambda: (made.forward(q, k, v),), "bwd": lambda: made.backward(d_o)}
        for direction, call in runs.items():
            if (scheme, direction) not in self.warm and case.size <= WARMED:
                self.once(call)
            self.warm.add((scheme, direction))
            row = {**about, **self.timed(call, compiles=scheme == "ring")}
            row["difference"] = self.difference(scheme, direction, self.results, made.own)
            self.results = None
            if scheme == "divided" and self.options.profile and row["ms"] < LONG:
                row["ranks"] = self.of_ranks(call)
                row["compute_ms"] = max(rank["compute_ms"] for rank in row["ranks"])
            yield direction, row
        error = getattr(getattr(made, "merge", None), "error", "")
        if error:
            print(f"{case.name} {scheme}: merged by PyTorch's operators: {error}", flush=True)
        if hasattr(made, "close"):
            made.close()

    def timed(self, call, compiles):
        """Median of the slowest rank's times, which begin together. The first run also loads kernels, or
        compiles them: it counts only if it is long and does not."""
        samples = self.slowest([self.once(call)])
        if compiles or samples[0] < LONG:
            runs = max(FEWEST_RUNS, min(MOST_RUNS, int(self.options.budget * 1e3 / samples[0])))
            samples = self.slowest([self.once(call) for _ in range(runs)])
        return {"ms": statistics.median(samples), "runs": len(samples)}

    def together(self):
        """What is enqueued next begins on all ranks at once, and after the host has enqueued it."""
        token = torch.zeros(1, device=self.device)
        torch.cuda._sleep(PAUSE)
        dist.all_reduce(token)

    def once(self, call):
        self.results = None
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.together()
        begin.record()
        self.results = call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def slowest(self, values):
        found = torch.tensor(values, device=self.device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return found.tolist()

    def difference(self, scheme, direction, tensors, own):
        """The largest relative L2 distance from the whole's tensors, on any rank; None without them."""
        if scheme == "one":
            self.expected[direction] = [tensor.detach() for tensor in tensors]
        known = self.slowest([float(direction not in self.expected)])[0] == 0
        if not known:
            return None
        return self.slowest([max(distance(x, own_rows(y, own))
                                 for x, y in zip(tensors, self.expected[direction]))])[0]

    def of_ranks(self, call):
        """Milliseconds that the kernels of each rank take: of parts, of transport (which wait for other ranks), of
        the rest; and its longest kernels, (name, when it begins, how long it takes)."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            self.together()
            call()
            torch.cuda.synchronize()
        events = sorted((event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA),
                        key=lambda event: event.time_range.start)
        begun = next(at for at, event in enumerate(events) if "nccl" in event.name.lower())  # of together()
        start = events[begun].time_range.end
        found = {"compute_ms": 0.0, "transport_ms": 0.0, "merge_ms": 0.0, "longest": []}
        for event in events[begun + 1 :]:
            name, took = event.name.lower(), event.time_range.elapsed_us() / 1e3
            kind = "transport" if "nccl" in name else "merge" if "attn_ranks" in name else "compute"
            found[f"{kind}_ms"] += took
            found["longest"].append((event.name[:80], (event.time_range.start - start) / 1e3, took))
        longest = sorted(found["longest"], key=lambda kernel: -kernel[2])[:LONGEST]
        found["longest"] = sorted(longest, key=lambda kernel: kernel[1])
        ranks = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, found)
        return ranks


def connect(device):
    """NCCL connects ranks when they first send to each other; the communicator is that of all schemes."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    token = torch.zeros(ranks, 1 << 20, device=device)
    dist.all_reduce(token)
    dist.all_to_all_single(torch.empty_like(token), token)
    others = [other for other in range(ranks) if other != rank]
    for work in dist.batch_isend_irecv([
            *(dist.P2POp(dist.isend, token[rank], other) for other in others),
            *(dist.P2POp(dist.irecv, token[other], other) for other in others)]) if others else ():
        work.wait()
    torch.cuda.synchronize()


def own_rows(tensor, own):
    """The rank's rows of a tensor [1, H, S, D], as bshd memory. Keys are at home where rows are."""
    return tensor.transpose(1, 2).index_select(1, own).transpose(1, 2)


def distance(x, y):
    """Computes by parts, because f32 copies of everything would not fit."""
    error = norm = 0.0
    for a, b in zip(x.split(16384, 2), y.split(16384, 2)):
        a, b = a.float(), b.float()
        error, norm = error + (a - b).square().sum().item(), norm + b.square().sum().item()
    found = (error / norm) ** 0.5 if norm else 0.0
    return found if found == found else float("inf")


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=pathlib.Path, required=True)
    parser.add_argument("--todo", type=pathlib.Path, required=True, help="[[case, scheme], ..]")
    parser.add_argument("--lines", type=pathlib.Path, required=True, help="results, of this rank")
    parser.add_argument("--budget", type=float, required=True, help="seconds a time may take")
    parser.add_argument("--profile", action="store_true")
    return parser.parse_args()


def main():
    options = parse()
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    connect(device)
    bench = Bench(options, device)
    with open(options.lines, "a", encoding="utf-8", buffering=1) as lines:

        def tell(**fields):
            lines.write(json.dumps(fields) + "\n")

        tell(gpu=torch.cuda.get_device_name(device), torch=torch.__version__,
             nccl=".".join(map(str, torch.cuda.nccl.version())))
        for place, (case, scheme) in enumerate(json.loads(options.todo.read_text())):
            tell(begin=place)
            try:
                for direction, row in bench.measure(ranks_plans.Case(*case), scheme):
                    tell(at=place, direction=direction, row=row)
            except BaseException as error:
                tell(at=place, error=f"rank {rank}: {type(error).__name__}: {error}")
                os._exit(1)  # others may wait for this rank: all begin again without this row
            tell(end=place)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
