"""Where the files are that belong to this package: in the package, if it was installed, else in the
checkout of the repository that it is part of."""
from __future__ import annotations

import os
import pathlib
import sys
from typing import Iterable

from .errors import CompilerError

PACKAGE = pathlib.Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent.parent
_OLDEST_CUDNN = 91900


def find_file(what: str, variable: str, candidates: Iterable[pathlib.Path]) -> pathlib.Path:
    """The file that the environment variable names, else the first candidate that exists.

    Raises CompilerError, naming everything that was tried."""
    named = os.environ.get(variable)
    if named:
        if not os.path.isfile(named):
            raise CompilerError(f"{variable} is {named}, which is not a file",
                                [f"set it to the path of {what}, or unset it"])
        return pathlib.Path(named)
    tried = list(candidates)
    for path in tried:
        if path.is_file():
            return path
    raise CompilerError(f"{what} was not found",
                        [*(f"not found: {path}" for path in tried),
                         f"install the package with `pip install .`, or set {variable} to its path"])


def specs_folder() -> pathlib.Path:
    """The folder of the standard specs."""
    installed = PACKAGE / "specs"
    return installed if installed.is_dir() else CHECKOUT / "specs"


def loaded_cudnn() -> pathlib.Path | None:
    """The libcudnn.so.9 that this process has loaded, by PyTorch for example, or None."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                if path.rpartition("/")[2].startswith("libcudnn.so.9"):
                    return pathlib.Path("/" + path)
    except OSError:
        pass
    return None


def wheel_cudnns() -> list[pathlib.Path]:
    """Each libcudnn.so.9 that NVIDIA's wheels installed for this Python, in the order of sys.path."""
    found = []
    for site in sys.path:
        path = pathlib.Path(site or ".") / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
        if path.is_file() and path not in found:
            found.append(path)
    return found


def cudnn_version(library: pathlib.Path) -> int | None:
    """The version of a copy of cuDNN, by the header in its wheel or the name of its file, without loading
    it: 91900 for 9.19.0. None if neither says it."""
    numbers = library.resolve().name.removeprefix("libcudnn.so.").split(".")
    if len(numbers) == 3 and all(number.isdigit() for number in numbers):
        return int(numbers[0]) * 10000 + int(numbers[1]) * 100 + int(numbers[2])
    header = library.resolve().parent.parent / "include" / "cudnn_version.h"
    try:
        words = [line.split() for line in header.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    values = {word[1]: int(word[2]) for word in words
              if len(word) == 3 and word[0] == "#define" and word[2].isdigit()}
    try:
        return (values["CUDNN_MAJOR"] * 10000 + values["CUDNN_MINOR"] * 100
                + values["CUDNN_PATCHLEVEL"])
    except KeyError:
        return None


def cudnn_folder() -> str | None:
    """The folder of the cuDNN to compile for: the copy that this process has loaded, else, unless
    ATTN_CUDNN_DIR names one, the newest that is recent enough of NVIDIA's wheels for this Python. None:
    attnc and libattn search by themselves."""
    loaded = loaded_cudnn()
    if loaded is not None:
        return str(loaded.parent)
    if os.environ.get("ATTN_CUDNN_DIR"):
        return None
    recent = [path for path in wheel_cudnns() if (cudnn_version(path) or 0) >= _OLDEST_CUDNN]
    return str(max(recent, key=lambda path: cudnn_version(path) or 0).parent) if recent else None
