"""Rooms of sources use each other one way: a room includes only those that its CMakeLists.txt lists before it, so
they form no circle; and what is outside an engine's room does not name the engine. The modules of the Python package
import each other one way."""
import ast
import graphlib
import re
import unittest

from texts import files, read

SOURCES = (".cpp", ".h", ".hpp", ".cuh", ".def")
INCLUDE = re.compile(r'^#include "((?:compiler|runtime|tools)/[^"]+)"', re.M)
SUBFOLDER = re.compile(r"^add_subdirectory\(([\w/]+)\)", re.M)
ENGINES = "compiler/engines"
PYTHON = "python"


def listed(folder):
    return [f"{folder}/{name}" for name in SUBFOLDER.findall(read(f"{folder}/CMakeLists.txt"))]


def engines():
    return re.findall(r"^ATTN_ENGINE\((\w+)", read(f"{ENGINES}/engines.def"), re.M)


def order():
    """All rooms, each after those that it may include."""
    rooms = listed("runtime")
    for room in listed("compiler"):
        if room == ENGINES:
            rooms += listed(ENGINES) + [f"{ENGINES}/{name}" for name in engines()]
        rooms.append(room)
    return rooms + ["tools"]


def room_of(place, rooms):
    """The room that has the file: the innermost. None for CUDA's sources, which no library compiles."""
    around = [room for room in rooms if str(place).startswith(room + "/")]
    return max(around, key=len, default=None)


def modules():
    """The modules of the Python package: the place of each."""
    found = {}
    for place in files(".py", under=f"{PYTHON}/attn"):
        parts = place.relative_to(PYTHON).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = place
    return found


class Imports(ast.NodeVisitor):
    """The names of modules that a source imports, also in functions. Those for annotations alone do not count."""

    def __init__(self, name, place, known):
        self.found, self._known = set(), known
        self._package = name if place.name == "__init__.py" else name.rpartition(".")[0]
        self.visit(ast.parse(read(place)))

    def visit_If(self, node):
        if not ast.unparse(node.test).endswith("TYPE_CHECKING"):
            self.generic_visit(node)
        else:
            for each in node.orelse:
                self.visit(each)

    def visit_Import(self, node):
        self.found |= {each.name for each in node.names} & self._known

    def visit_ImportFrom(self, node):
        around = ".".join(self._package.split(".")[:1 - node.level or None]) if node.level else ""
        module = ".".join(filter(None, (around, node.module)))
        for each in node.names:
            inner = f"{module}.{each.name}"
            self.found |= {inner if inner in self._known else module} & self._known

    def visit_Call(self, node):
        if ast.unparse(node.func).endswith(("import_module", "__import__")) and isinstance(node.args[0], ast.Constant):
            self.found |= {node.args[0].value} & self._known
        self.generic_visit(node)


class Rooms(unittest.TestCase):
    def test_include_only_those_listed_before(self):
        rooms = order()
        for place in files(*SOURCES, under="compiler") + files(*SOURCES, under="runtime"):
            room = room_of(place, rooms)
            if room is None:
                self.assertFalse(str(place).endswith(".cpp"), f"{place} is in no room that is listed")
                continue
            for included in INCLUDE.findall(read(place)):
                used = room_of(included, rooms)
                self.assertLessEqual(rooms.index(used), rooms.index(room), f"{place} includes {included}")

    def test_an_engine_is_named_in_its_own_room_alone(self):
        names = "|".join(engines())
        named = re.compile(rf'^#include "{ENGINES}/({names})/|"({names})"', re.M)
        for place in files(*SOURCES, under="compiler"):
            for include, word in named.findall(read(place)):
                name = include or word
                if name == "cudnn" and word:
                    continue  # the library's name, too
                self.assertEqual(room_of(place, order()), f"{ENGINES}/{name}", place)
        for place in files(*SOURCES, under="tools"):
            self.assertNotRegex(read(place), f'#include "{ENGINES}/({names})/', place)

    def test_python_modules_import_one_way(self):
        places = modules()
        self.assertGreater(len(places), 40)
        imports = {name: Imports(name, place, set(places)).found for name, place in places.items()}
        self.assertIn("attn.specs", imports["attn.attention"])
        try:
            graphlib.TopologicalSorter(imports).prepare()
        except graphlib.CycleError as error:
            self.fail("a circle, each imported by the next: " + ", ".join(error.args[1]))


if __name__ == "__main__":
    unittest.main()
