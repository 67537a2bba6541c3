"""Tests of `cmake --install`: symbols and dependencies of the library, and the examples, built only from
the installed tree. The prefix is moved after the installation, as packagers do."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import attnc
from attnc import SOURCE

BUILD = pathlib.Path(os.environ["ATTN_BUILD_DIR"])
CMAKE, CC, CXX = os.environ["CMAKE"], os.environ["CC"], os.environ["CXX"]
NM, READELF = os.environ["NM"], os.environ["READELF"]
STANDINS, STANDIN_PLAN = os.environ["STANDINS"], os.environ["STANDIN_PLAN"]
HEADERS = SOURCE / "runtime" / "api"
# The spec of each example, and its output for a plan of the stand-ins (which have no training pair).
EXAMPLES = {
    "embed_c": ("causal", r"^o: \S+ \S+ \S+ \S+ \.\.\.\n$"),
    "embed": ("causal", r"^o: \S+ \S+ \S+ \S+ \.\.\.\n$"),
    "server": ("causal", r"^100 of 100 requests served by 4 threads, 0 answers differ from the first\n$"),
    "cuda_graph": ("causal", r"^10 launches as captured: .*\n10 launches with other addresses: "),
    "layers": ("causal", r"^2 passes over 32 layers with a workspace of \d+ bytes: the same outputs\n$"),
    "train": ("t5_bias", None),
    "batches": ("../examples/serving/batches", None),
}


def output_of(*command, code=0, **how):
    process = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                             check=False, timeout=1800, **how)
    if process.returncode != code:
        raise AssertionError(f"{command}: {process.returncode}\n{process.stdout}{process.stderr}")
    return process.stdout


def python_with_torch():
    """A Python whose PyTorch has CUDA, or None."""
    finds = ("import pathlib, torch; "
             "assert (pathlib.Path(torch.__path__[0]) / 'lib' / 'libtorch_cuda.so').is_file()")
    environment = SOURCE / ".deps" / "python" / "bin" / "python"
    for python in (sys.executable, os.environ.get("PYTHON", ""), environment):
        if shutil.which(str(python)) and subprocess.run([str(python), "-c", finds], check=False,
                                                        stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return None


def listed_symbols():
    return (HEADERS / "symbols.txt").read_text().split()


class Package(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        output_of(CMAKE, "--install", BUILD, "--prefix", cls.folder / "first")
        cls.prefix = cls.folder / "moved"
        (cls.folder / "first").rename(cls.prefix)
        cls.libraries = next(cls.prefix.glob("lib*"))
        if not (cls.libraries / "libattn.so").exists():
            cls.libraries = next(cls.prefix.glob("lib/*/libattn.so")).parent
        cls.environment = {**os.environ, "LD_LIBRARY_PATH": str(cls.libraries),
                           "PKG_CONFIG_PATH": str(cls.libraries / "pkgconfig")}

    def configure(self, name, *options):
        """Configures a build of the examples that finds the package with find_package."""
        build = self.folder / name
        output_of(CMAKE, "-G", "Ninja", "-S", SOURCE / "examples", "-B", build,
                  f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_C_COMPILER={CC}",
                  f"-DCMAKE_CXX_COMPILER={CXX}", *options, cwd=self.folder)
        return build

    def pkg_config(self, *options, module="attn"):
        return output_of("pkg-config", *options, module, env=self.environment).split()

    def standin_plan(self):
        plan = self.folder / "standin.attnplan"
        output_of(STANDIN_PLAN, plan)
        return plan

    def plan(self, spec):
        """A plan for the local GPU; any plan if there is none."""
        if not attnc.has_gpu():
            return self.standin_plan()
        plan = self.folder / f"{pathlib.Path(spec).name}.attnplan"
        both = ["--direction", "both"] if spec == "t5_bias" else []
        output_of(self.prefix / "bin" / "attnc", "compile", SOURCE / "specs" / f"{spec}.attn",
                  "--target", "native", "-o", plan, *both)
        return plan

    def expect_run(self, program, spec="causal"):
        """The program succeeds, or reports that there is no driver."""
        process = subprocess.run([program, self.plan(spec)], capture_output=True, text=True,
                                 check=False, timeout=1800, env=self.environment)
        if attnc.has_gpu():
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertNotEqual(process.stdout, "")
        else:
            self.assertEqual(process.returncode, 4, process.stderr)
            self.assertRegex(process.stderr, r"^cuda: no CUDA driver on this machine\n")

    def expect_run_on_standins(self, program, plan, shows):
        """Runs the program with stand-ins for cuDNN and the driver."""
        paths = f"{STANDINS}:{self.environment['LD_LIBRARY_PATH']}"
        environment = {**self.environment, "LD_LIBRARY_PATH": paths, "ATTN_CUDNN_DIR": STANDINS}
        self.assertRegex(output_of(program, plan, env=environment), shows)

    def test_attnc_with_its_manual_and_completion(self):
        share = self.prefix / "share"
        page = (share / "man" / "man1" / "attnc.1").read_text()
        self.assertEqual(page, output_of(self.prefix / "bin" / "attnc", "help", "--man"))
        for shell, name in (("bash", "bash-completion/completions/attnc"),
                            ("zsh", "zsh/site-functions/_attnc"),
                            ("fish", "fish/vendor_completions.d/attnc.fish")):
            self.assertEqual((share / name).read_text(),
                             output_of(self.prefix / "bin" / "attnc", "completion", shell))

    def test_examples_find_the_shared_library(self):
        build = self.configure("shared")
        output_of(CMAKE, "--build", build)
        plan = self.standin_plan()
        for program, (spec, shows) in EXAMPLES.items():
            with self.subTest(program):
                self.expect_run(build / program, spec)
                if shows is not None:
                    self.expect_run_on_standins(build / program, plan, shows)
                self.assertEqual(output_of(build / program, code=2, env=self.environment), "")

    def test_an_example_finds_the_static_library(self):
        build = self.configure("static", "-DATTN_EXAMPLES_STATIC=ON")
        output_of(CMAKE, "--build", build, "--target", "embed", "embed_c")
        for program in ("embed", "embed_c"):
            self.assertNotIn("libattn", output_of(READELF, "-d", build / program))
            self.expect_run(build / program)

    def test_a_program_for_exported_pytorch_models(self):
        python = python_with_torch()
        if python is None:
            self.skipTest("no PyTorch with CUDA")
        build = self.folder / "aoti"
        output_of(CMAKE, "-G", "Ninja", "-S", SOURCE / "examples" / "aoti", "-B", build,
                  f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_CXX_COMPILER={CXX}",
                  f"-DPython3_EXECUTABLE={python}", cwd=self.folder)
        output_of(CMAKE, "--build", build)
        process = subprocess.run([build / "run", self.folder], capture_output=True, text=True,
                                 check=False, timeout=1800, env=self.environment)
        self.assertEqual((process.returncode, process.stdout), (1, ""))
        self.assertEqual(process.stderr, f"{self.folder}/plans/plans.tsv cannot be read\n")

    def test_pkg_config(self):
        source = SOURCE / "examples" / "embed.c"
        program = self.folder / "by_pkg_config"
        output_of(CC, "-std=c99", source, "-o", program, *self.pkg_config("--cflags", "--libs"))
        self.expect_run(program)
        output_of(CC, "-std=c99", source, "-o", program,
                  *self.pkg_config("--cflags", "--libs", module="attn-static"))
        self.assertNotIn("libattn", output_of(READELF, "-d", program))
        self.expect_run(program)

    def test_a_c_project_links_the_static_library(self):
        build = self.folder / "c_project"
        output_of(CMAKE, "-G", "Ninja", "-S", SOURCE / "tests" / "package" / "c_project", "-B", build,
                  f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_C_COMPILER={CC}")
        output_of(CMAKE, "--build", build)
        self.assertRegex(output_of(build / "app"), r"^(ok|cuda|cudnn)\n$")

    def test_install_builds_what_is_missing(self):
        archive, kept = BUILD / "libattn.a", self.folder / "kept.a"
        shutil.copy2(archive, kept)
        self.addCleanup(lambda: archive.exists() or shutil.copy2(kept, archive))
        archive.unlink()
        output_of(CMAKE, "--install", BUILD, "--prefix", self.folder / "again")
        self.assertEqual(len(list((self.folder / "again").rglob("libattn.a"))), 1)

    def test_two_assignments_fit_on_a_line(self):
        source = self.folder / "assignments.cpp"
        source.write_text("#include <attn.hpp>\n"
                          "#define BOTH ATTN_TRY_ASSIGN(a, f()); ATTN_TRY_ASSIGN(b, f())\n"
                          "attn::Result<int> f() { return 1; }\n"
                          "attn::Result<int> sum() { int a = 0, b = 0; BOTH; return a + b; }\n"
                          "int main() { return sum().ok() ? 0 : 1; }\n")
        output_of(CXX, "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                  f"-I{self.prefix}/include", source)

    def test_headers_are_strict(self):
        strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wno-sign-conversion", "-Werror",
                  "-fsyntax-only", f"-I{self.prefix}/include"]
        c, cpp = self.folder / "one.c", self.folder / "one.cpp"
        c.write_text("#include <attn.h>\nint main(void) { return attn_api_version(); }\n")
        cpp.write_text("#include <attn.hpp>\nint main() { return attn::Status().ok() ? 0 : 1; }\n")
        for standard in ("c99", "c11"):
            output_of(CC, f"-std={standard}", *strict, c)
        for standard in ("c++17", "c++20"):
            output_of(CXX, f"-std={standard}", *strict, cpp)
        for part in (self.prefix / "include" / "attn").iterdir():
            c.write_text(f"#include <attn/{part.name}>\n")
            language = (CC, "-std=c99", "-xc") if part.suffix == ".h" else (CXX, "-std=c++17", "-xc++")
            output_of(*language, *strict, c)

    def test_the_list_of_symbols_is_the_header(self):
        text = "".join(header.read_text() for header in (HEADERS / "attn").glob("*.h"))
        declared = re.findall(r"^ATTN_API .*?\b(attn_\w+)\(", text, re.MULTILINE)
        self.assertEqual(sorted(declared), listed_symbols())

    def test_the_library_exports_the_list_and_nothing_else(self):
        lines = output_of(NM, "-D", "--defined-only", self.libraries / "libattn.so").splitlines()
        names = {line.split()[-1] for line in lines}
        version = re.search(r"ATTN_API_VERSION (\d+)", (HEADERS / "attn/version.h").read_text())[1]
        node = f"ATTN_{version}"
        self.assertEqual(names - {node}, {f"{name}@@{node}" for name in listed_symbols()})
        dynamic = output_of(READELF, "-d", self.libraries / "libattn.so")
        self.assertIn(f"soname: [libattn.so.{version}]", dynamic)

    def test_the_runtime_has_neither_compiler_nor_cuda_in_it(self):
        dynamic = output_of(READELF, "-d", self.libraries / "libattn.so")
        needed = set(re.findall(r"NEEDED\).*\[(\w+)", dynamic))
        self.assertLessEqual(needed, {"libstdc", "libm", "libgcc_s", "libc", "ld"})
        self.assertNotRegex(dynamic, "RPATH|RUNPATH")
        for library in ("libattn.so", "libattn.a"):
            symbols = output_of(NM, "-C", self.libraries / library)
            for room in ("antlr4", "attn::ast", "attn::sema", "attn::ir::", "attn::lowering",
                         "attn::driver", "attn::derive", "attn::worker::serve",
                         "attn::worker::compile", "attn::nvrtc"):
                self.assertNotIn(room, symbols, library)

    def test_nothing_knows_where_it_was_built(self):
        for path in (self.libraries / "libattn.so", self.libraries / "libattn.a",
                     self.prefix / "bin" / "attnc", *self.libraries.glob("cmake/attn/*"),
                     self.libraries / "pkgconfig" / "attn.pc"):
            content = path.read_bytes()
            for folder in (SOURCE, BUILD, self.folder):
                self.assertNotIn(str(folder).encode() + b"/", content, path)

    def test_attnc_is_installed(self):
        plan = self.standin_plan()
        program = shutil.which("attnc", path=str(self.prefix / "bin"))
        self.assertIn("workspace", output_of(program, "inspect", plan))


if __name__ == "__main__":
    attnc.main()
