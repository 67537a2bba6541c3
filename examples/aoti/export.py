"""Exports a model with two attentions for C++: export.py FOLDER

    PYTHONPATH=python python examples/aoti/export.py out
    cmake -S examples/aoti -B out/build -DPython3_EXECUTABLE=$(which python) -DCMAKE_PREFIX_PATH=PREFIX
    cmake --build out/build && out/build/run out

Writes model.pt2 (AOTInductor), program.pt2 (torch.export), plans/ and check.pt: an input, and what the
model makes of it. Needs a GPU and a C++ compiler; PREFIX is where attn is installed.
"""

import pathlib
import sys

import torch

import attn
import attn.torch

SPEC = """
attention alibi {
  dims  B, Hq, Sq, D;
  learn slopes: f32[Hq];
  score score + slopes[h] * (kv_idx - q_idx);
  mask  q_idx >= kv_idx;
}
"""


class Layer(torch.nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.slopes = torch.nn.Parameter(2.0 ** -torch.arange(1, heads + 1))
        self.attend = attn.compile(SPEC)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        o = self.attend(q, k, v, slopes=self.slopes.float())
        return x + self.out(o.transpose(1, 2).flatten(2))


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(0)
    model = torch.nn.Sequential(Layer(256, 4), Layer(256, 4)).to("cuda", torch.bfloat16).eval()
    x = torch.randn(2, 200, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        program = torch.export.export(model, (x,))
        print(f"{attn.torch.save_plans(program, folder / 'plans')} plans")
        torch.export.save(program, folder / "program.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
        torch.save((x.cpu(), model(x).cpu()), folder / "check.pt")


if __name__ == "__main__":
    main()
