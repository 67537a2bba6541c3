"""What doctor finds, and that `import attn` needs nothing."""
import io
import os
import subprocess
import sys
import pathlib

import pytest

import attn
from attn import _find

PYTHON = str(pathlib.Path(attn.__file__).parents[1])


def test_what_is_found_is_printed():
    printed = io.StringIO()
    found = attn.doctor(file=printed)
    assert found["attnc"]["version"] == found["libattn"]["version"] == attn.__version__
    assert found["cache"]["plans"] == 0
    lines = printed.getvalue().splitlines()
    assert [line.split()[0] for line in lines if not line.startswith((" ", "note"))] == [
        "python", "attnc", "libattn", "cudnn", "gpu", "numpy", "torch", "cache"]
    assert f"attnc     {attn.__version__}  {found['attnc']['path']}" in lines


def test_nothing_is_raised_where_everything_is_missing(tmp_path):
    """In an environment without attnc, libattn and packages."""
    script = ("import attn; found = attn.doctor(); "
              "assert 'not found' in found['attnc']['error'] or 'not a file' in found['attnc']['error']; "
              "assert 'libattn.so.1' in found['libattn']['error']")
    environment = {"PATH": "/nowhere", "PYTHONPATH": PYTHON, "HOME": str(tmp_path),
                   "ATTN_ATTNC": str(tmp_path / "attnc"), "ATTN_LIBRARY": str(tmp_path / "libattn.so.1")}
    process = subprocess.run([sys.executable, "-S", "-c", script], env=environment, capture_output=True,
                             text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "note: set it to the path of attnc, or unset it" in process.stdout


def test_import_needs_neither_numpy_nor_torch():
    script = "import sys, attn; assert not {'numpy', 'torch'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": PYTHON}, check=True)


def wheel(folder, *version):
    library = folder / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    header = folder / "nvidia" / "cudnn" / "include" / "cudnn_version.h"
    for file in (library, header):
        file.parent.mkdir(parents=True)
    library.write_text("")
    names = ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL")
    header.write_text("".join(f"#define {name} {number}\n" for name, number in zip(names, version)))
    return library


def test_the_newest_cudnn_that_is_recent_enough_is_used(tmp_path, monkeypatch):
    old, new, newest = (wheel(tmp_path / name, *version) for name, version in (
        ("old", (9, 14, 0)), ("new", (9, 19, 0)), ("newest", (9, 20, 1))))
    monkeypatch.setattr(_find, "loaded_cudnn", lambda: None)
    monkeypatch.delenv("ATTN_CUDNN_DIR", raising=False)

    def used(*folders):
        monkeypatch.setattr(sys, "path", [str(tmp_path / folder) for folder in folders])
        return _find.cudnn_folder()

    assert _find.cudnn_version(old) == 91400
    assert used("old") is None
    assert used("old", "new") == str(new.parent)
    assert used("new", "newest", "old") == str(newest.parent)
    monkeypatch.setenv("ATTN_CUDNN_DIR", "/elsewhere")
    assert used("new") is None
    monkeypatch.setattr(_find, "loaded_cudnn", lambda: old)
    assert used("new") == str(old.parent)


def test_a_version_is_read_from_the_name_of_a_file(tmp_path):
    file = tmp_path / "libcudnn.so.9.19.2"
    file.write_text("")
    (tmp_path / "libcudnn.so.9").symlink_to(file)
    assert _find.cudnn_version(tmp_path / "libcudnn.so.9") == 91902
    assert _find.cudnn_version(tmp_path / "libnone.so") is None


def test_an_unknown_name_of_the_package():
    with pytest.raises(AttributeError, match="module 'attn' has no attribute 'complie'"):
        attn.complie  # noqa: B018
