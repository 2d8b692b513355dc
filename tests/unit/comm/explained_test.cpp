// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/explained.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

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
  // Of pinned memory on the host, too.
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

TEST(Explained, AGpuThatFailsIsTheEnvironments) {
  for (const char* text :
       {"CUDA error: uncorrectable ECC error encountered",
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA`",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"}) {
    const Explained explained = of(text);
    EXPECT_EQ(explained.kind, ErrorKind::environment) << text;
    expect_part(explained.message, "dmesg | grep Xid");
    EXPECT_EQ(explained.message.find("TORCH_USE"), std::string::npos) << explained.message;
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
