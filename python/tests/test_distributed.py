"""attn.torch.distribute in two processes on the CPU, this one and another; test_ranks_gpu.py has GPUs."""

import pytest

pytest.importorskip("torch")

import ranks_on_cpu  # noqa: E402
import two_processes  # noqa: E402


def test_two_processes(tmp_path):
    two_processes.run(ranks_on_cpu, tmp_path)


def test_specs_of_the_same_text_with_other_imports_differ(tmp_path):
    torch = pytest.importorskip("torch")
    import attn.torch

    def spec(name, condition):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.attn").write_text(f"fn seen() = {condition};\n")
        path = tmp_path / name / "own.attn"
        path.write_text('import "rows.attn";\nattention own { dims B, Hq, Sq, D; mask seen(); }\n')
        return path

    sizes = {"B": 1, "Hq": 2, "Sq": 8, "D": 16}
    paths = [spec("a", "q_idx >= kv_idx"), spec("b", "q_idx <= kv_idx")]
    q = torch.randn(1, 2, 8, 16)
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        first, second = (attn.torch.distribute(path, **sizes) for path in paths)
        assert first is not second and attn.torch.distribute(paths[0], **sizes) is first
        for sharded, path in zip((first, second), paths):
            torch.testing.assert_close(sharded(q, q, q), attn.compile(path)(q, q, q))
    finally:
        dist.destroy_process_group()


def test_values_that_an_attention_was_divided_for_are_copied():
    torch = pytest.importorskip("torch")
    import attn.torch

    text = "attention d { dims B, Hq, Sq, D; tensor doc: i32[B, Sq]; mask doc[b, q_idx] == doc[b, kv_idx]; }"
    q, doc = torch.randn(1, 2, 8, 16), torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2]], dtype=torch.int32)
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        sharded = attn.torch.distribute(text, values={"doc": doc}, B=1, Hq=2, Sq=8, D=16)
        expected = attn.compile(text)(q, q, q, doc=doc)
        doc.zero_()
        torch.testing.assert_close(sharded(q, q, q), expected)
    finally:
        dist.destroy_process_group()
