"""Results files: the measurements of one run of compare_peers.py at one shape.

    {"gpu", "cudnn", "torch", "torch_cudnn", "date", "shape": [B, Hq, Hkv, S, D], "runs",
     "absent": {peer: why}, "rows": [{"variant", "direction": "forward" | "backward", "ours_ms",
     "form", "peers": {peer: ms}, "errors": {"ours" | peer: why}, "seconds"}]}

A row has no ours_ms if errors has "ours". A peer in neither peers nor errors cannot express the variant
or is absent. Times are median device times; seconds is the wall time of the row, including compilation.
"""
import json
import os
import pathlib
import re

VARIANTS = pathlib.Path(__file__).resolve().parent / "variants"
DIRECTIONS = ("forward", "backward")
# Table order: masks, from simple to structured, then scores.
ORDER = (
    "noop causal sliding_window_256 sliding_window_1024 prefix_lm_128 chunked_256 document "
    "document_causal natten_13 longformer dilated_window softcap softcap_causal softcap_window_256 "
    "alibi_causal relative_bias squared checkerboard bias_head bias_full"
).split()


def parse_shape(text):
    """Parses "B,Hq,Hkv,S,D". Raises ValueError."""
    shape = tuple(int(size) for size in text.split(","))
    if len(shape) != 5 or min(shape) < 1:
        raise ValueError(f"`{text}` is not a shape B,Hq,Hkv,S,D")
    return shape


def shape_name(shape):
    return "b{}hq{}hkv{}s{}d{}".format(*shape)


def bindings(shape):
    """Options that bind a spec of bench/variants to a shape."""
    sizes = zip(("B", "Hq", "Hkv", "Sq", "D"), shape)
    return [word for name, size in sizes for word in ("--bind", f"{name}={size}")]


def file_name(results):
    """GPU-cudnnVERSION-SHAPE.json"""
    gpu = re.sub(r"\W+", "_", results["gpu"])
    return f"{gpu}-cudnn{results['cudnn']}-{shape_name(results['shape'])}.json"


def load(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def save(path, results):
    """Replaces the file atomically: a killed run leaves the previous version."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


def key(row):
    return row["variant"], row["direction"]
