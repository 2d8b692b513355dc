# SPDX-License-Identifier: Apache-2.0
"""The recipe in spack/ without Spack: what CMake looks for is a dependency, versions agree with those elsewhere,
and the stand-alone tests of the recipe pass on an installed prefix.

  spack_recipe_test.py SOURCE_FOLDER PREFIX WORK_FOLDER
"""

import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types
import unittest

root, prefix, work = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
recipe_file = root / "spack/spack_repo/finetune/packages/finetune/package.py"

# What CMake looks for, and which package of Spack brings it. None: part of the compiler or of CMake.
PROVIDERS = {
    "Threads": None, "OpenMP": None, "Python3": None, "PkgConfig": "pkgconfig",
    "fmt": "fmt", "nlohmann_json": "nlohmann-json", "toml11": "toml11", "CLI11": "cli11",
    "MPI": "mpi", "HDF5": "hdf5", "ZLIB": "zlib-api", "Kokkos": "kokkos", "CUDAToolkit": "cuda",
    "NCCL": "nccl", "LibTorch": "py-torch", "Parquet": "arrow", "GTest": "googletest",
    "benchmark": "benchmark", "libisal": "isa-l", "libxxhash": "xxhash", "libcrypto": "openssl", "libpcre2-8": "pcre2",
    "libutf8proc": "utf8proc", "yaml-cpp": "yaml-cpp", "libzstd": "zstd", "liblz4": "lz4", "Snappy": "snappy",
}


class Recorder:
    """What the recipe declares: (directive, first argument, conditions)."""

    def __init__(self):
        self.rows, self.conditions = [], []

    def directive(self, name):
        def record(*arguments, **options):
            conditions = [*self.conditions, *([options["when"]] if "when" in options else [])]
            self.rows.append((name, arguments[0] if arguments else "", " ".join(conditions)))

        return record

    @contextlib.contextmanager
    def when(self, condition):
        self.conditions.append(condition)
        yield
        self.conditions.pop()

    def of(self, name):
        return [row[1:] for row in self.rows if row[0] == name]


class Executable:
    """Runs a program and returns what it prints; raises if it fails, as Spack's does."""

    def __init__(self, path):
        self.path = path

    def __call__(self, *words, output=None, error=None):
        done = subprocess.run([str(self.path), *words], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{words} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout


class Prefix(str):
    """A path whose attributes are the paths below it."""

    def __getattr__(self, name):
        return Prefix(os.path.join(self, name))


def load_recipe():
    recorder = Recorder()
    api = types.ModuleType("spack.package")
    for name in ("conflicts", "depends_on", "license", "maintainers", "requires", "variant", "version"):
        setattr(api, name, recorder.directive(name))
    api.when, api.Executable, api.join_path = recorder.when, Executable, os.path.join
    api.InstallError = type("InstallError", (Exception,), {})
    api.run_after = api.on_package_attributes = lambda *_, **__: lambda function: function
    builtin = {"cmake": "CMakePackage", "cuda": "CudaPackage"}
    modules = {"spack": types.ModuleType("spack"), "spack.package": api}
    for part in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        modules[part] = types.ModuleType(part)
    for part, base in builtin.items():
        module = types.ModuleType(f"spack_repo.builtin.build_systems.{part}")
        setattr(module, base, type(base, (), {"cuda_arch_values": ("80", "90")}))
        module.generator = recorder.directive("generator")
        modules[module.__name__] = module
    api.__all__ = [name for name in vars(api) if not name.startswith("_")]
    sys.modules.update(modules)
    spec = importlib.util.spec_from_file_location("recipe", recipe_file)
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    return recipe.Finetune, recorder


Finetune, recorder = load_recipe()
text = recipe_file.read_text()


def looked_for():
    """All names in find_package and pkg_check_modules, with the file that has each."""
    files = [root / "CMakeLists.txt", *sorted((root / "src/cmake").glob("*.cmake"))]
    for folder in ("src", "modules", "app", "tests", "inputs"):
        files += sorted((root / folder).rglob("CMakeLists.txt"))
    for file in files:
        cmake = re.sub(r"#.*", "", file.read_text())
        for name in re.findall(r"find_package\((\w+)", cmake):
            yield name, file
        for names in re.findall(r"pkg_check_modules\(\w+ ([^)]*)\)", cmake):
            for name in set(names.split()) - {"REQUIRED", "IMPORTED_TARGET"}:
                yield name, file


def versions_of(package):
    """The ranges that the recipe asks of a package."""
    for spec, _ in recorder.of("depends_on"):
        found = re.match(rf"{re.escape(package)}@([\w.:]+)", spec)
        if found:
            yield found.group(1)


class Recipe(unittest.TestCase):
    def test_has_a_dependency_for_everything_that_cmake_looks_for(self):
        have = {re.match(r"[\w-]+", spec).group() for spec, _ in recorder.of("depends_on")}
        names = dict(looked_for())
        self.assertGreater(len(names), 15)
        for name, file in names.items():
            self.assertIn(name, PROVIDERS, f"{file} looks for it: which package of Spack brings it?")
            if PROVIDERS[name]:
                self.assertIn(PROVIDERS[name], have, f"{file} looks for {name}")

    def test_depends_on_nothing_else(self):
        needed = {PROVIDERS[name] for name, _ in looked_for()} | {"c", "cxx", "cmake"}
        for spec, _ in recorder.of("depends_on"):
            self.assertIn(re.match(r"[\w-]+", spec).group(), needed, spec)

    def test_has_the_variants_that_are_promised(self):
        variants = {name for name, _ in recorder.of("variant")}
        self.assertLessEqual({"nccl", "parquet", "rocm", "tests"}, variants)
        bases = {base.__name__ for base in Finetune.__mro__}
        self.assertLessEqual({"CudaPackage", "CMakePackage"}, bases)

    def test_takes_the_versions_that_are_tested(self):
        cmake = (root / "CMakeLists.txt").read_text()
        oldest = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)\)", cmake).group(1)
        self.assertIn(f"{oldest}:", versions_of("cmake"))
        setup = (root / "jobscripts/setup.sh").read_text()
        torch = re.search(r"torch==(\d+\.\d+)\.\d+", setup).group(1)
        self.assertEqual([torch], list(versions_of("py-torch")))
        readme = (root / "spack/README.md").read_text()
        self.assertIn(f"libtorch {torch}", readme)

    def test_is_in_the_table_of_dependencies(self):
        readme = (root / "spack/README.md").read_text()
        table = readme.split("## What it needs")[1].split("## ")[0]
        setup = (root / "jobscripts/setup.sh").read_text()
        debian = re.search(r"^packages=\((.*?)^\)", setup, re.S | re.M).group(1).split()
        self.assertGreater(len(debian), 15)
        # pip is how libtorch comes; Spack's own languages are the compiler.
        names = [*(set(debian) - {"python3-pip"}), *(
            name for name in {re.match(r"[\w-]+", spec).group() for spec, _ in recorder.of("depends_on")}
            if name not in {"c", "cxx"})]
        for name in names:
            self.assertRegex(table, rf"`{re.escape(name)}[`@]")

    def test_sets_options_that_cmake_has(self):
        cmake = "".join(file.read_text() for file in
                        [root / "CMakeLists.txt", *(root / "src/cmake").glob("*.cmake")])
        options = set(re.findall(r'"(FINETUNE_\w+)", ', text.split("def cmake_args")[1].split("def ")[0]))
        self.assertIn("FINETUNE_WITH_CUDA", options)
        for option in options:
            self.assertRegex(cmake, rf"(option|set)\({option}\b")

    def test_is_built_from_the_repository_that_it_lies_in(self):
        self.assertEqual(root.as_uri(), Finetune.git)

    def test_is_an_api_of_spack_1(self):
        repo = (root / "spack/spack_repo/finetune/repo.yaml").read_text()
        self.assertRegex(repo, r"namespace: finetune\n\s*api: v2\.\d")


class Environments(unittest.TestCase):
    def test_point_at_what_is_there(self):
        for file in sorted((root / "spack/env").glob("*/spack.yaml")):
            yaml = file.read_text()
            source = file.parent / re.search(r"path: (\S+)", yaml).group(1)
            self.assertTrue((source / "CMakeLists.txt").is_file(), file)
            repo = file.parent / re.search(r"repos:\n\s+finetune: (\S+)", yaml).group(1)
            self.assertTrue((repo / "repo.yaml").is_file(), file)
            for include in re.findall(r"- (\S+packages.yaml)", yaml):
                self.assertTrue((file.parent / include).is_file(), file)


class StandAloneTests(unittest.TestCase):
    def test_pass_on_the_installed_prefix(self):
        names = [name for name in vars(Finetune) if name.startswith("test_")]
        self.assertEqual({"test_version", "test_plan", "test_quickstart"}, set(names))
        package = Finetune()
        package.prefix = Prefix(prefix)
        for name in [*names, "check_install"]:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            os.chdir(work)
            with self.subTest(name):
                getattr(package, name)()


unittest.main(argv=sys.argv[:1], verbosity=1)
