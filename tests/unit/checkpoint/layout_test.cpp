// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/layout.hpp"

#include <gtest/gtest.h>

namespace finetune::checkpoint::layout_test {
namespace {

TEST(Layout, FolderNamesHaveTenDigits) {
  EXPECT_EQ(folder_name(200), "step-0000000200");
  EXPECT_EQ(step_of("step-0000000200"), 200);
  EXPECT_EQ(step_of(folder_name(largest_step)), largest_step);
  for (const char* name : {"step-200", "step-00000002000", "step-000000020x",
                           ".tmp-step-0000000200", "step-000000-200", "Step-0000000200", ""})
    EXPECT_FALSE(step_of(name)) << name;
}

TEST(Layout, FileNamesAreNeverPaths) {
  EXPECT_EQ(file_name(Files::node, 3), "node00003.h5");
  EXPECT_EQ(file_name(Files::rank, 123456), "rank123456.h5");
  EXPECT_TRUE(is_file_name("node00003.h5"));
  EXPECT_TRUE(is_file_name("rank123456.h5"));
  for (const char* name : {"node.h5", "../node00003.h5", "node/../0.h5", "node00003.h5/",
                           "nodex0003.h5", "/etc/passwd", "MANIFEST.json", "node0000000000.h5", ""})
    EXPECT_FALSE(is_file_name(name)) << name;
}

TEST(Layout, TensorNamesAreHdf5LinkNames) {
  EXPECT_TRUE(is_tensor_name("model.layers.0.self_attn.q_proj.weight"));
  for (const char* name : {"", ".", "..", "a/b", "a b", "a\"b", "a\\b", "a\nb", "\xc3\xa4"})
    EXPECT_FALSE(is_tensor_name(name)) << name;
  EXPECT_TRUE(is_kind("exp_avg_sq"));
  for (const char* name : {"", "a.b", "A", "a/b", "."})
    EXPECT_FALSE(is_kind(name)) << name;
}

}  // namespace
}  // namespace finetune::checkpoint::layout_test
