"""Plans of exported programs, which C++ programs load: compiled for a GPU that is not here."""

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.ones(4))
        self.attend = attn.compile(
            "attention alibi { dims B, Hq, Sq, D; learn slopes: f32[Hq]; param cap: f32; outputs lse, o;"
            " score cap * tanh(score / cap) + slopes[h] * (kv_idx - q_idx); }"
        )

    def forward(self, x):
        _, o = self.attend(x, x, x, slopes=self.slopes, cap=20.0)
        return self.attend(o, x[:, :, :64], x[:, :, :64], slopes=self.slopes, cap=20.0)[1]


def exported(**options):
    x = torch.randn(2, 4, 128, 64, dtype=torch.bfloat16)
    with torch.no_grad():
        return torch.export.export(Layer(), (x,), **options)


def test_a_plan_for_each_set_of_shapes(tmp_path):
    program = exported()
    assert attn.torch.save_plans(program, tmp_path, target="h200") == 2
    lines = [line.split("\t") for line in (tmp_path / "plans.tsv").read_text().splitlines()]
    called = {node.args[0] for node in program.graph.nodes if "attn.forward" in str(node.target)}
    assert {line[3] for line in lines} == called
    assert all(line[1:3] == ["lse,o", "cap"] for line in lines)
    sizes = {attn.load(tmp_path / line[0]).sizes["Skv"] for line in lines}
    assert sizes == {64, 128}
    assert all(info.direction == "fwd" and info.target == "h200"
               for line in lines for info in attn.load(tmp_path / line[0]).plans)


def test_sizes_that_are_not_fixed_are_refused(tmp_path):
    batch = torch.export.Dim("batch", max=64)
    with pytest.raises(attn.ArgumentError, match="which is not fixed"):
        attn.torch.save_plans(exported(dynamic_shapes=({0: batch},)), tmp_path, target="h200")
