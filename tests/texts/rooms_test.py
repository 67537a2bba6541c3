"""Rooms of sources use each other one way: a room includes only those that its CMakeLists.txt lists before it, so
they form no circle; and what is outside an engine's room does not name the engine."""
import re
import unittest

from texts import files, read

SOURCES = (".cpp", ".h", ".hpp", ".cuh", ".def")
INCLUDE = re.compile(r'^#include "((?:compiler|runtime|tools)/[^"]+)"', re.M)
SUBFOLDER = re.compile(r"^add_subdirectory\(([\w/]+)\)", re.M)
ENGINES = "compiler/engines"


def listed(folder):
    return [f"{folder}/{name}" for name in SUBFOLDER.findall(read(f"{folder}/CMakeLists.txt"))]


def order():
    """All rooms, each after those that it may include."""
    rooms = listed("runtime")
    for room in listed("compiler"):
        rooms += listed(ENGINES) if room == ENGINES else []
        rooms.append(room)
    return rooms + ["tools"]


def room_of(place, rooms):
    """The room that has the file: the innermost. None for CUDA's sources, which no library compiles."""
    around = [room for room in rooms if str(place).startswith(room + "/")]
    return max(around, key=len, default=None)


def engines():
    return re.findall(r"^ATTN_ENGINE\((\w+)", read(f"{ENGINES}/engines.def"), re.M)


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


if __name__ == "__main__":
    unittest.main()
