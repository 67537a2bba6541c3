"""What the tests of this folder share: the files of the repository, without git, since sources are also built
from archives. Run all: python3 -m unittest discover -s tests/texts -p "*_test.py"."""
import pathlib

SOURCE = pathlib.Path(__file__).resolve().parents[2]
_LEFT_OUT = {".deps", ".git", ".venv", "__pycache__"}


def files(*suffixes, under="."):
    """The text files below a folder whose names end in one of the suffixes, as paths from the root."""
    found = []
    for path in sorted((SOURCE / under).rglob("*")):
        place = path.relative_to(SOURCE)
        if place.parts[0].startswith("build") or _LEFT_OUT & set(place.parts):
            continue
        if path.name.endswith(suffixes) and path.is_file():
            found.append(place)
    return found


def read(place):
    return (SOURCE / place).read_text(encoding="utf-8")
