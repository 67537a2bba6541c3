"""A FlexAttention mod: a file of mods/, evaluated by Python or as a spec."""

import ast
import pathlib

import numpy

FOLDER = pathlib.Path(__file__).resolve().parent / "mods"
DIMS = dict(B=2, Hq=4, Hkv=2, Sq=48, Skv=48, Dqk=8, Dv=48)
DTYPES = {"i": "i32", "f": "f64", "b": "bool"}

SPEC = """{imports}
attention {name}_mod({constants}) {{
  dims    B = 2, Hq = 4, Hkv = 2, Sq = 48, Skv = Sq, Dqk = 8, Dv = 48;
  {tensors}
  {clauses}
  outputs o, lse;
}}
"""


class Mod:
    def __init__(self, path):
        self.name = path.stem
        text = path.read_text(encoding="utf-8")
        (definition,) = (
            node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)
        )
        lines = text.splitlines(keepends=True)[definition.lineno - 1 : definition.end_lineno]
        self.source = "".join(lines)  # the function
        self.body = "".join(lines[1:])
        self.arguments = ", ".join(argument.arg for argument in definition.args.args)
        self.is_score = self.arguments.startswith("score")
        self.globals = {}
        exec(compile(text, str(path), "exec"), self.globals)
        values = self.globals.items()
        self.constants = {key: value for key, value in values if isinstance(value, int | float)}
        self.tensors = {key: value for key, value in values if isinstance(value, numpy.ndarray)}

    def pasted(self):
        """A spec with the function body unchanged."""
        keyword = "score" if self.is_score else "mask"
        function = f"fn {self.name}({self.arguments}) {{\n{self.body}}}"
        return self.spec(f"{function}\n  {keyword} {self.name}({self.arguments});")

    def spec(self, clauses):
        """A spec of the mod's constants, these clauses, and the tensors that they do not declare."""
        lines = clauses.splitlines()
        imports = [line for line in lines if line.startswith("import ")]
        tensors = [
            f"tensor {key}: {DTYPES[value.dtype.kind]}[{', '.join(map(str, value.shape))}];"
            for key, value in self.tensors.items()
            if not any(line.split()[:2] in (["tensor", f"{key}:"], ["learn", f"{key}:"]) for line in lines)
        ]
        return SPEC.format(
            name=self.name,
            imports="\n".join(imports),
            constants=", ".join(f"{key} = {value}" for key, value in self.constants.items()),
            tensors="\n  ".join(tensors),
            clauses="\n  ".join(line for line in lines if line not in imports),
        )

    def scores(self, products):
        """[B, Hq, Sq, Skv]: the scores by Python, -inf where hidden."""
        function = self.globals[self.name]
        result = numpy.empty_like(products)
        for place in numpy.ndindex(products.shape):
            indexes = map(numpy.int64, place)
            if self.is_score:
                result[place] = function(products[place], *indexes)
            else:
                result[place] = products[place] if function(*indexes) else -numpy.inf
        return result


def every_mod():
    return [Mod(path) for path in sorted(FOLDER.glob("*.py"))]
