// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/explained.hpp"

#include <gtest/gtest.h>

#include <array>
#include <new>
#include <set>
#include <stdexcept>

#include "comm/detail/cuda_errors.hpp"
#include "core/host.hpp"

namespace finetune::comm::explained_test {
namespace {

using core::ErrorKind;

Explained of(const std::string& text) {
  return explain(std::runtime_error(text));
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

TEST(Explained, OurOwnErrorsStayAsTheyAre) {
  const Explained explained = explain(core::Error(ErrorKind::input, "file: broken"));
  EXPECT_EQ(explained.kind, ErrorKind::input);
  EXPECT_EQ(explained.message, "file: broken");
}

TEST(Explained, MemoryOfTheHostIsTheEnvironments) {
  EXPECT_EQ(explain(std::bad_alloc()).kind, ErrorKind::environment);
  const Explained explained = of("DefaultCPUAllocator: can't allocate memory: you tried to ...");
  EXPECT_EQ(explained.kind, ErrorKind::environment);
  expect_part(explained.message, "`finetune plan` says how much is needed");
}

TEST(Explained, MemoryOfAGpuIsToldWithItsFigures) {
  const Explained explained = of(
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
      "which 1.12 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 5.00 "
      "GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
      "setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n"
      "Exception raised from malloc at CUDACachingAllocator.cpp:1 (most recent call first):\n"
      "frame #0: c10::Error::Error() + 0x94");
  EXPECT_EQ(explained.kind, ErrorKind::environment);
  expect_part(explained.message, "Tried to allocate 2.00 GiB");
  expect_part(explained.message, "70.00 GiB is allocated");
  for (const char* part : {"frame #", "Exception raised", "PYTORCH_ALLOC_CONF"})
    EXPECT_EQ(explained.message.find(part), std::string::npos) << explained.message;
  // What libtorch does not allocate itself.
  EXPECT_EQ(of("CUDA error: out of memory\nCUDA kernel errors might be ...").kind,
            ErrorKind::environment);
}

TEST(Explained, WhatIsNoFaultOfTheGpuDoesNotBlameIt) {
  const Explained foreign =
      of("CUDA error: no kernel image is available for execution on the device");
  EXPECT_EQ(foreign.kind, ErrorKind::environment);
  expect_part(foreign.message, "LibTorch_ROOT");
  const Explained full = of("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`");
  EXPECT_EQ(full.kind, ErrorKind::environment);
  expect_part(full.message, "there is not enough");
  for (const Explained& explained : {foreign, full})
    EXPECT_EQ(explained.message.find("Xid"), std::string::npos) << explained.message;
}

TEST(Explained, AGpuThatFailsIsTheEnvironmentsAndItsNodeIsNamed) {
  for (const char* text :
       {"CUDA error: uncorrectable ECC error encountered",
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA`",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"}) {
    const Explained explained = of(text);
    EXPECT_EQ(explained.kind, ErrorKind::environment) << text;
    expect_part(explained.message, "dmesg | grep 'NVRM: Xid'");
    expect_part(explained.message, "sbatch --exclude=" + core::host_name());
    EXPECT_EQ(explained.message.find("TORCH_USE"), std::string::npos) << explained.message;
  }
}

struct Failure {
  int code;
  const char* words;
  ErrorKind kind;
  std::array<const char*, 2> parts;
};

// What CUDA's runtime returns to us, and what libtorch makes of the same code.
const Failure failures[] = {
    {2, "out of memory", ErrorKind::environment, {"memory of GPU 3 (GPU-1b)", "micro_batch"}},
    {35,
     "CUDA driver version is insufficient for CUDA runtime version",
     ErrorKind::environment,
     {"CUDA cannot use it", "nvidia-smi on n7"}},
    {46,
     "CUDA-capable device(s) is/are busy or unavailable",
     ErrorKind::environment,
     {"CUDA cannot use it", "exclusive"}},
    {101, "invalid device ordinal", ErrorKind::bug, {"CUDA was called wrongly", "report"}},
    {1, "invalid argument", ErrorKind::bug, {"CUDA was called wrongly", "report"}},
    {209,
     "no kernel image is available for execution on the device",
     ErrorKind::environment,
     {"no code for it", "LibTorch_ROOT"}},
    {214,
     "uncorrectable ECC error encountered",
     ErrorKind::environment,
     {"GPU 3 (GPU-1b) on n7: it failed", "NVRM: Xid"}},
    {220,
     "uncorrectable NVLink error detected during the execution",
     ErrorKind::environment,
     {"it failed", "NVRM: Xid"}},
    {400, "invalid resource handle", ErrorKind::bug, {"CUDA was called wrongly", "report"}},
    {700,
     "an illegal memory access was encountered",
     ErrorKind::environment,
     {"it failed", "other nodes too"}},
    {710, "device-side assert triggered", ErrorKind::bug, {"CUDA was called wrongly", "report"}},
    {714, "hardware stack error", ErrorKind::environment, {"it failed", "--exclude=n7"}},
    {719, "unspecified launch failure", ErrorKind::environment, {"it failed", "NVRM: Xid"}},
    {802,
     "system not yet initialized",
     ErrorKind::environment,
     {"CUDA cannot use it", "fabric manager"}},
    {999, "unknown error", ErrorKind::environment, {"it failed", "NVRM: Xid"}},
};

TEST(CudaErrors, SayWhoseFaultTheyAreAndWhatToDo) {
  const GpuPlace place = {.gpu = "GPU 3 (GPU-1b)", .host = "n7"};
  for (const Failure& failure : failures) {
    const CudaFault fault = fault_of(failure.code);
    const Explained explained = explain_cuda(fault, failure.words, place);
    EXPECT_EQ(explained.kind, failure.kind) << explained.message;
    for (const char* part : failure.parts)
      expect_part(explained.message, part);
    EXPECT_EQ(fault_of(std::string("CUDA error: ") + failure.words + "\nSearch for"), fault)
        << failure.words;
  }
}

TEST(CudaErrors, OfOurOwnCallsNameCallHostAndDevice) {
  try {
    fail_cuda(214, "uncorrectable ECC error encountered", "cudaEventRecord");
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    expect_part(error.what(), "GPU on " + core::host_name() +
                                  ": it failed (cudaEventRecord: "
                                  "uncorrectable ECC error encountered)");
  }
}

TEST(CudaErrors, OfLibrariesAreToldApart) {
  using enum CudaFault;
  EXPECT_EQ(fault_of("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `x`"), program);
  EXPECT_EQ(fault_of("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `x`"), memory);
  EXPECT_EQ(fault_of("CUDNN_STATUS_BAD_PARAM"), program);
  EXPECT_EQ(fault_of("CUDA driver error: out of memory"), memory);
  EXPECT_EQ(fault_of("mat1 and mat2 shapes cannot be multiplied"), std::nullopt);
}

TEST(CudaErrors, AreListedOnceAndInTheirOrder) {
  std::set<std::string_view> seen;
  int last = 0;
  for (const CudaError& error : cuda_errors()) {
    EXPECT_TRUE(seen.insert(error.words).second) << error.words;
    if (error.code == 0) continue;
    EXPECT_GT(error.code, last) << error.words;
    last = error.code;
  }
}

TEST(Explained, TheRestIsABugWithoutFrames) {
  const Explained explained = of(
      "mat1 and mat2 shapes cannot be multiplied\nException raised from meta at x.cpp:1\nframe #0");
  EXPECT_EQ(explained.kind, ErrorKind::bug);
  EXPECT_EQ(explained.message, "mat1 and mat2 shapes cannot be multiplied");
}

}  // namespace
}  // namespace finetune::comm::explained_test
