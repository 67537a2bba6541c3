"""What the tests of this folder share: the files of the repository, without git, since sources are also built
from archives. Run all: python3 -m unittest discover -s tests/texts -p "*_test.py"."""
import os
import pathlib

SOURCE = pathlib.Path(__file__).resolve().parents[2]
_LEFT_OUT = {".deps", ".git", ".venv", "__pycache__"}


def files(*suffixes, under="."):
    """The text files below a folder whose names end in one of the suffixes, as paths from the root."""
    found = []
    for folder, folders, names in os.walk(SOURCE / under):
        place = pathlib.Path(folder).relative_to(SOURCE)
        folders[:] = [name for name in folders if name not in _LEFT_OUT
                      and not (place == pathlib.Path() and name.startswith("build"))]
        found += [place / name for name in names if name.endswith(suffixes)]
    return sorted(found)


def read(place):
    return (SOURCE / place).read_text(encoding="utf-8")
