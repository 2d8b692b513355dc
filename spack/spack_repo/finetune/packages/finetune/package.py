# SPDX-License-Identifier: Apache-2.0
"""Spack package of finetune. See spack/README.md."""

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Finetune(CMakePackage, CudaPackage):
    """Fine-tunes large language models on as many nodes as a job has: one MPI program."""

    # Built from a source tree, by an environment's `develop` section (spack/env/*/spack.yaml).
    version("main")

    license("Apache-2.0")

    variant("tests", default=False, description="Build the tests")
    variant("parquet", default=False, description="Read Parquet files")
    variant("bench", default=False, description="Build the benchmarks", when="+tests")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("mpi")
    depends_on("hdf5@1.10.8:+mpi")
    depends_on("fmt@9:")
    depends_on("nlohmann-json@3.11:")
    depends_on("cli11@2.1:")
    # 4.x hangs on hostile decks, see src/deck/precheck.hpp.
    depends_on("toml11@3.7")
    depends_on("isa-l@2.30:")
    depends_on("xxhash@0.8:")
    depends_on("pcre2@10.42:+jit")
    depends_on("utf8proc@2.8:+shared")
    depends_on("zlib-api")
    depends_on("zstd@1.4:")
    depends_on("arrow@10:+parquet", when="+parquet")

    # libtorch is the C++ part of py-torch; Python itself is not used. Everything that finetune never
    # calls is left out, which is most of the build.
    depends_on("py-torch@2.10:+openmp~distributed")
    depends_on("py-torch~cuda", when="~cuda")

    # A host-only Kokkos never runs anything: the kernels take torch's threads then.
    depends_on("kokkos@4.7:+serial cxxstd=20")
    depends_on("kokkos~cuda", when="~cuda")

    with when("+cuda"):
        conflicts("cuda_arch=none", msg="Name the GPU, for example cuda_arch=90")
        depends_on("cuda@12.8:")
        depends_on("nccl@2.26:")
        depends_on("kokkos@4.7.01:+cuda+wrapper", when="%gcc")
        for arch in CudaPackage.cuda_arch_values:
            depends_on(f"py-torch+cuda cuda_arch={arch}", when=f"cuda_arch={arch}")
            depends_on(f"kokkos+cuda cuda_arch={arch}", when=f"cuda_arch={arch}")

    depends_on("googletest@1.12:", when="+tests")
    depends_on("benchmark@1.7:", when="+bench")

    generator("ninja")

    def cmake_args(self):
        torch = self["py-torch"]
        return [
            self.define_from_variant("FINETUNE_WITH_CUDA", "cuda"),
            self.define_from_variant("FINETUNE_TESTS", "tests"),
            self.define("FINETUNE_BENCH", self.spec.satisfies("+bench")),
            # Spack's compiler wrapper adds the target's own flags.
            self.define("FINETUNE_ARCH", ""),
            # include/ and lib/ lie in the Python package's folder.
            self.define("LibTorch_ROOT", join_path(torch.python_platlib, "torch")),
        ]

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        install(join_path(self.build_directory, "finetune"), prefix.bin)
