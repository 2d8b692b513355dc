# SPDX-License-Identifier: Apache-2.0
"""Spack package of finetune. See spack/README.md."""

import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


def refuse(refused, reason):
    """A validator that refuses values of a variant: `refused` says which. Unlike conflicts and
    requires, for whose messages the solver takes many minutes, it does so before solving."""

    def validator(package, variant, values):
        if any(refused(value) for value in values):
            raise InstallError(f"{package}: {variant}={','.join(map(str, values))}: {reason}")

    return validator


NO_NCCL = "refused (GPUs have no other way to talk to each other). Leave ~nccl out"
NO_AMD = "refused (GPUs are served by CUDA and NCCL alone). Use +cuda cuda_arch=90, or CPU ranks"


class Finetune(CMakePackage, CudaPackage):
    """Fine-tunes large language models on as many nodes as a job has: one MPI program."""

    # The repository that this file lies in, as it was last committed. To build what is not
    # committed yet, or a source tree without git: `develop` in spack/env/*/spack.yaml.
    git = pathlib.Path(__file__).resolve().parents[5].as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant(
        "nccl",
        default=True,
        when="+cuda",
        description="GPUs talk through NCCL",
        validator=refuse(lambda value: value is False, NO_NCCL),
    )
    variant(
        "rocm",
        default=False,
        description="AMD GPUs. Not written yet: refused",
        validator=refuse(lambda value: value is True, NO_AMD),
    )
    # So that the usual +rocm amdgpu_target=gfx942 is answered with the reason as well.
    variant(
        "amdgpu_target",
        default="none",
        description="AMD's architecture. Refused",
        validator=refuse(lambda value: value != "none", NO_AMD),
    )
    variant(
        "device_kokkos",
        default=False,
        when="+cuda",
        description="Memory-bound work on GPUs by kernels: a Kokkos with CUDA. Never run on one yet",
    )
    variant("parquet", default=False, description="Read Parquet files by Arrow's library")
    variant("tests", default=False, description="Build the tests, and run them with --test=root")
    variant("bench", default=False, when="+tests", description="Build the benchmarks")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("mpi")
    depends_on("hdf5@1.10.8:1+mpi")
    depends_on("fmt@9:")
    depends_on("nlohmann-json@3.11:")
    depends_on("cli11@2.1:")
    # 4.x hangs on hostile decks, see src/deck/detail/precheck.hpp.
    depends_on("toml11@3.7.1")
    depends_on("isa-l@2.30:")
    depends_on("xxhash@0.8:")
    depends_on("openssl@3:")
    depends_on("pcre2@10.42:+jit")
    depends_on("utf8proc@2.8:+shared")
    depends_on("yaml-cpp@0.6.3:+shared")
    depends_on("lz4@1.9:")
    depends_on("snappy@1.1.8:")
    depends_on("zlib-api")
    depends_on("zstd@1.4:")
    depends_on("arrow@10:+parquet", when="+parquet")

    # libtorch is the C++ part of py-torch; Python itself is not used. No other version is tested.
    depends_on("py-torch@2.11+openmp")
    depends_on("py-torch~cuda~rocm", when="~cuda")

    # A Kokkos for the host alone never runs anything: the kernels take torch's threads then, and on
    # GPUs libtorch's operations take their place.
    # Debian 12 has 3.4.
    depends_on("kokkos@3.4:+serial")
    depends_on("kokkos@4.7: cxxstd=20", when="+device_kokkos")
    depends_on("kokkos~cuda", when="~device_kokkos")
    depends_on("kokkos~cuda", when="~cuda")

    with when("+cuda"):
        requires("+nccl", msg="GPUs have no other way to talk to each other")
        conflicts("cuda_arch=none", msg="Name the GPU, for example cuda_arch=90")
        depends_on("cuda@12.8:")
        depends_on("nccl@2.26:")
        for arch in CudaPackage.cuda_arch_values:
            depends_on(f"py-torch+cuda cuda_arch={arch}", when=f"cuda_arch={arch}")
            depends_on(f"nccl+cuda cuda_arch={arch}", when=f"cuda_arch={arch}")
            depends_on(
                f"kokkos+cuda+wrapper cuda_arch={arch}", when=f"+device_kokkos cuda_arch={arch}"
            )

    depends_on("googletest@1.12:", when="+tests")
    depends_on("benchmark@1.7:", when="+bench")

    conflicts("platform=darwin", msg="Linux only")
    conflicts("platform=windows", msg="Linux only")
    conflicts("%cxx=gcc@:11", msg="GCC 12 is the oldest that is tested")
    conflicts("%cxx=clang@:14", msg="C++20's library parts need a newer Clang")

    def cmake_args(self):
        # Its libraries and headers lie in the Python package's folder.
        libtorch = find_libraries(
            "libtorch_cpu", root=self.spec["py-torch"].prefix, shared=True, recursive=True
        )
        args = [
            self.define_from_variant("FINETUNE_WITH_CUDA", "cuda"),
            self.define_from_variant("FINETUNE_TESTS", "tests"),
            # Files that are compiled together read their headers once.
            self.define("CMAKE_UNITY_BUILD", True),
            self.define("FINETUNE_BENCH", self.spec.satisfies("+bench")),
            # ccache is Spack's to call (config:ccache). In front of Spack's compiler wrapper it
            # would not see what flags the wrapper adds, and give objects made for another CPU.
            self.define("CCACHE", False),
            # Without it CMake would take a Parquet that it happens to see.
            self.define("CMAKE_DISABLE_FIND_PACKAGE_Parquet", self.spec.satisfies("~parquet")),
            # Spack's compiler wrapper adds the target's own flags.
            self.define("FINETUNE_ARCH", ""),
            self.define("FINETUNE_INSTALL_LIBTORCH", "OFF"),
            self.define("LibTorch_ROOT", ancestor(libtorch.directories[0])),
        ]
        if self.spec.satisfies("+device_kokkos"):
            # The kernels are CUDA to CMake, which has no default for these.
            args.append(
                self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value)
            )
        return args

    def setup_run_environment(self, env):
        env.set("FINETUNE_ROOT", self.prefix.share.finetune)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        """The installed program starts and finds its decks (spack install --test=root)."""
        self._run("--version")
        self._run("plan", self._input("quickstart.toml"))

    def test_version(self):
        """The program starts and says how it was built."""
        out = self._run("--version")
        assert "libtorch" in out and "hdf5" in out

    def test_plan(self):
        """A recipe for a node of eight GPUs is planned; needs neither a GPU nor MPI ranks."""
        recipe = self._input("recipes", "llama-3.1-8b-full-1x8.toml")
        out = self._run("plan", recipe, "--ranks", "8", "--gpu", "--memory", "80GiB")
        assert "GiB" in out

    def test_quickstart(self):
        """The quickstart trains three steps on one rank and saves a checkpoint that verifies."""
        out = self._run(
            self._input("quickstart.toml"),
            "train.output=quickstart",
            "train.max_steps=3",
            "train.global_batch=4",
            "train.micro_batch=4",
            "data.validation_path=",
            "metrics.answers=0",
        )
        assert "loss" in out
        self._run("verify", "quickstart")

    def _input(self, *names):
        return join_path(self.prefix.share.finetune.inputs, *names)

    def _run(self, *words):
        program = Executable(join_path(self.prefix.bin, "finetune"))
        return program(*words, output=str.split, error=str.split)
