"""`attn.doctor()`: what was found on this machine, and what would be used."""
from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import Any, TextIO

from . import _attnc, _find, _libattn
from .errors import Error
from .types import Json


def doctor(file: TextIO | None = None) -> dict[str, Json]:
    """Prints what this package finds and would use: attnc, libattn, the GPU and its driver, each copy of
    cuDNN, PyTorch, and the folder of cached plans. Returns the same as a dict. Loads neither PyTorch nor
    cuDNN into this process. `file` is where to print, standard output by default.

    Where something is missing, "error" says what would help; nothing is raised."""
    found: dict[str, Any] = {
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "attnc": _attempt(_attnc_entry),
        "libattn": _attempt(lambda: {"path": str(_libattn.path()), "version": _libattn.version()}),
        "cudnn": _attempt(_cudnn_entry),
        "gpu": _attempt(_gpu_entry),
        "numpy": _package("numpy"),
        "torch": _package("torch"),
        "cache": _attempt(_cache_entry),
    }
    found["advice"] = _advice(found)
    _print(found, file or sys.stdout)
    return found


def _attempt(entry: Any) -> dict[str, Any]:
    try:
        return dict(entry())
    except Error as error:
        return {"error": str(error)}


def _versions() -> dict[str, Any]:
    folder = _find.cudnn_folder()
    found: dict[str, Any] = _attnc.run(["version", *(["--cudnn", folder] if folder else [])])
    return found


def _attnc_entry() -> dict[str, Any]:
    return {"path": str(_attnc.path()), "version": _versions()["attnc"]}


def _cudnn_entry() -> dict[str, Any]:
    """`used` is the copy for which plans are compiled, and with which they run here."""
    loaded = _find.loaded_cudnn()
    copies = [{"path": str(path), "version": _text(_find.cudnn_version(path)), "from": origin}
              for path, origin in [*([(loaded, "loaded in this process")] if loaded else []),
                                   *((path, "a wheel of this Python") for path in _find.wheel_cudnns())]]
    used = _versions()["cudnn"]
    entry: dict[str, Any] = {"copies": copies, "used": None}
    if used["found"]:
        entry["used"] = {"path": used["path"], "version": used["version"]}
    else:
        entry["error"] = used.get("why", "cuDNN was not found")
    return entry


def _gpu_entry() -> dict[str, Any]:
    device = dict(_versions()["device"])
    if device.pop("found"):
        return device
    return {"error": device.get("why", "there is no GPU")}


def _cache_entry() -> dict[str, Any]:
    info = _attnc.run(["cache", "info"])
    return {"path": info["folder"], "plans": info["plans"], "bytes": info["bytes"]}


def _package(name: str) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = {"version": importlib.metadata.version(name)}
    except importlib.metadata.PackageNotFoundError:
        return {"error": "not installed"}
    module = sys.modules.get(name)
    if name == "torch" and module is not None:
        entry["cuda"] = module.version.cuda
        entry["cudnn"] = _text(module.backends.cudnn.version())
    return entry


def _text(version: int | None) -> str | None:
    if version is None:
        return None
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _advice(found: dict[str, Any]) -> list[str]:
    advice = []
    if "error" in found["gpu"]:
        advice.append("without a GPU, plans can be compiled for a named target, and the reference computes")
    if found["cudnn"].get("used") is None:
        advice.append("without cuDNN 9.19 or newer, only engine=\"native\" compiles (for sm_90): "
                      "pip install nvidia-cudnn-cu13")
    if "error" in found["torch"]:
        advice.append("without PyTorch, attentions are called with NumPy arrays, on the CPU")
    if "torch" not in sys.modules and "error" not in found["torch"]:
        advice.append("import torch first: its cuDNN is then the one that is used")
    return advice


def _print(found: dict[str, Any], file: Any) -> None:
    for name, entry in found.items():
        if name == "advice":
            for line in entry:
                print(f"note      {line}", file=file)
            continue
        for at, line in enumerate(_lines(name, entry)):
            print(f"{name if at == 0 else '':<10}{line}", file=file)


def _lines(name: str, entry: dict[str, Any]) -> list[str]:
    if name == "cudnn":
        lines = [f"{copy['version'] or 'unknown version'}  {copy['path']} ({copy['from']})"
                 for copy in entry.get("copies", [])]
        used = entry.get("used")
        if used:
            return [f"{used['version']}  {used['path']}: used", *lines]
        return [*entry["error"].splitlines(), *lines]
    if "error" in entry:
        return str(entry["error"]).splitlines()
    words = dict(entry)
    first = [str(words.pop(key)) for key in ("version", "name") if key in words]
    return ["  ".join([*first, *(str(value) if key in ("path", "executable") else f"{key} {value}"
                                 for key, value in words.items())])]
