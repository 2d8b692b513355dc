#pragma once
// SPDX-License-Identifier: Apache-2.0
// How near to their bounds comparisons of numbers come: what is near them on one processor may be
// beyond them on another.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace finetune::tests {

/// `bound`. If FINETUNE_TEST_MARGINS names a file, the test's name and which part of its bound
/// `difference` is are added to it.
inline double noted(double difference, double bound) {
  const char* path = std::getenv("FINETUNE_TEST_MARGINS");
  if (path == nullptr || difference == 0) return bound;
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "a"), &std::fclose);
  if (file && test != nullptr)
    std::fprintf(file.get(), "%.3f %s.%s\n", difference / bound, test->test_suite_name(),
                 test->name());
  return bound;
}

}  // namespace finetune::tests
