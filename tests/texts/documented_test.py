"""What is exported is documented: C functions, the C++ wrappers and the Python package. That libattn exports
exactly the functions of symbols.txt is tested by tests/package."""
import ast
import re
import unittest

from texts import files, read

API = "runtime/api"
# The first line of a public function of C++, but no operator, constructor or destructor.
FUNCTION = re.compile(r"^(?:  )?(?:static |inline |constexpr )*(?:const )?[\w:]+(?:<.+>)?[*&]* [*&]*(?!handle\(|ATTN_)\w+\(")
NO_TYPE = re.compile(r"^ *(?:return|else|explicit|throw|new) ")
TYPE = re.compile(r"^(?:class|struct|enum class) (?:\[\[nodiscard\]\] )?\w+ .*\{$|^using ")


def begins_comment(line):
    return re.match(r"\s*(//|\*|/\*)", line) or line.endswith("*/")


def has_comment(lines, at):
    """Whether the declaration that begins on line `at` has a comment before it, or behind its first or last line."""
    if begins_comment(lines[at - 1]):
        return True
    if re.match(r"template <", lines[at - 1].strip()):
        return has_comment(lines, at - 1)
    end = at
    while not re.search(r"[;{}]", lines[end]):
        end += 1
    return "//" in lines[end] or "/*" in lines[end]


def is_in_group_with_comment(lines, at):
    """Whether a comment comes before it and before declarations of one line above it."""
    while re.search(r"(;|\S.*\})( +// .*)?$", lines[at - 1]):
        at -= 1
    return bool(begins_comment(lines[at - 1]))


def public_lines(text):
    """The numbers of lines that are public: outside `detail`, and not behind `private:`."""
    in_detail = is_private = False
    for at, line in enumerate(text.split("\n")):
        if line.endswith("namespace detail {") or line == "}  // namespace detail":
            in_detail = line.endswith("{")
        elif line in (" private:", "};"):
            is_private = line == " private:"
        elif not (in_detail or is_private):
            yield at


def definitions(node, prefix=""):
    """The public functions and classes of a Python file, nested classes included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not child.name.startswith("_"):
            yield f"{prefix}{child.name}", child
            if isinstance(child, ast.ClassDef):
                yield from definitions(child, f"{child.name}.")


def is_overload(node):
    """Whether it is only one of the types of a function that follows."""
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in getattr(node, "decorator_list", ()))


class Documented(unittest.TestCase):
    def test_c(self):
        lines = [line for header in files(".h", under=f"{API}/attn") for line in read(header).split("\n")]
        starts = {match[1]: at for at, line in enumerate(lines)
                  if (match := re.match(r"ATTN_API .*?\b(attn_\w+)\(", line))}
        names = read(f"{API}/symbols.txt").split()
        self.assertEqual(sorted(starts), names)
        self.assertEqual([name for name in names if not has_comment(lines, starts[name])], [])

    def test_cpp(self):
        count = 0
        for header in files(".hpp", under=API):
            text = read(header)
            lines = text.split("\n")
            public = list(public_lines(text))
            types = [at for at in public if TYPE.match(lines[at])]
            functions = [at for at in public if FUNCTION.match(lines[at]) and not NO_TYPE.match(lines[at])]
            count += len(functions)
            missing = [at for at in types if not has_comment(lines, at)]
            missing += [at for at in functions if not (has_comment(lines, at) or is_in_group_with_comment(lines, at))]
            self.assertEqual([lines[at] for at in missing], [], header)
        self.assertGreater(count, 30)

    def test_python(self):
        missing = [f"{place}: {name}" for place in files(".py", under="python/attn")
                   for name, each in definitions(ast.parse(read(place)))
                   if not ast.get_docstring(each) and not is_overload(each)]
        self.assertEqual(missing, [])

    def test_exported_names_of_python_are_on_its_page(self):
        pages = {"python/attn/__init__.py": "docs/python.md", "python/attn/torch/__init__.py": "docs/python.md",
                 "python/attn/jax/__init__.py": "docs/jax.md"}
        for place, name in pages.items():
            page = read(name)
            listed = next(each.value for each in ast.parse(read(place)).body if isinstance(each, ast.Assign)
                          and each.targets[0].id == "__all__")
            missing = [name for name in ast.literal_eval(listed) if not re.search(rf"\b{name}\b", page)]
            self.assertEqual(missing, [], place)


if __name__ == "__main__":
    unittest.main()
