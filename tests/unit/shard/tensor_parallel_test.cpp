// SPDX-License-Identifier: Apache-2.0
// A block on the ranks of a tensor-parallel axis, against the same block on one.

#include "shard/detail/tensor_parallel.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <vector>

#include "comm/detail/worker.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "model/block.hpp"
#include "model/layout.hpp"
#include "model/rope.hpp"
#include "shard/detail/held_boxes.hpp"
#include "support/ranks.hpp"
#include "unit/model/loss.hpp"
#include "unit/model/table_weights.hpp"

namespace finetune::shard::tensor_parallel_test {
namespace {

constexpr std::int64_t batch = 2, length = 11, tokens = batch * length;

model::Architecture architecture() {
  model::Architecture a = tests::rotary(8, 100);
  a.num_layers = 1;
  a.vocab_size = 52;
  a.d_model = 24;
  a.num_heads = 8;
  a.num_kv_heads = 4;
  a.d_ff = 36;
  return a;
}

/// What this rank holds of a row's tensor.
at::Tensor own_part(const model::Parameter& row, const at::Tensor& whole, const AxisPlace& place) {
  std::vector<at::Tensor> parts;
  for (const core::Box& box : held_boxes(row, place)) {
    at::Tensor part = whole;
    for (std::size_t dim = 0; dim < box.begin.size(); ++dim)
      part = part.narrow(static_cast<std::int64_t>(dim), box.begin[dim], box.extent[dim]);
    parts.push_back(part);
  }
  const std::int64_t dim = row.split ? static_cast<std::int64_t>(row.split->dim) : 0;
  return at::cat(parts, dim).contiguous();
}

struct Results {
  at::Tensor y_ND, dx_ND;
};

Results run(model::Ops& ops, const model::ParameterTable& table) {
  const model::Architecture a = architecture();
  const at::Tensor x = tests::normal({tokens, a.d_model}, 98).set_requires_grad(true);
  const at::Tensor dy = tests::normal({tokens, a.d_model}, 99);
  const model::Sequence sequence = model::make_sequence(a, batch, length);
  const at::Tensor y = model::pre_norm_block(ops, a, table.decoder.blocks.front(), x, sequence, 0);
  const at::Tensor dx = torch::autograd::grad({y}, {x}, {dy})[0];
  return {y.detach(), dx};
}

/// Every row's part on this rank.
tests::TableWeights own_weights(const model::ParameterTable& table,
                                const tests::TableWeights& whole, const AxisPlace& place) {
  std::vector<at::Tensor> parts;
  for (int row = 0; row < std::ssize(table.rows); ++row)
    parts.push_back(own_part(table.row(row), whole.tensor(row), place));
  return {table, parts};
}

TEST(TensorParallel, ALossOverPartsOfTheVocabularyIsTheLossOverAll) {
  if (architecture().vocab_size % tests::world().size() != 0)
    GTEST_SKIP() << "each rank has as many tokens of the vocabulary";
  const model::ParameterTable table = model::lay_out(architecture());
  const int head = table.decoder.head;
  const at::Tensor x = tests::normal({tokens, architecture().d_model}, 98);
  at::Tensor labels = at::arange(tokens).mul_(7).remainder_(architecture().vocab_size);
  labels[3] = -100;
  tests::TableWeights whole(table, at::kFloat);
  at::Tensor expected_dx;
  const tests::Loss expected =
      tests::loss_and_gradient(model::Ops(whole), x, labels, head, 0.5, expected_dx);

  comm::MpiGroup group(tests::world(), std::make_shared<comm::Worker>(comm::Worker::Where::behind));
  const AxisPlace place = {model::tensor_axis, group.size(), group.rank()};
  tests::TableWeights own = own_weights(table, whole, place);
  TensorParallelOps parallel(own, table, group);
  at::Tensor dx;
  const tests::Loss sum = tests::loss_and_gradient(parallel, x, labels, head, 0.5, dx);
  const tests::Loss forward = tests::loss(parallel, x, labels, head);

  EXPECT_NEAR(sum.loss, expected.loss, 1e-6 * expected.loss);
  EXPECT_EQ(forward.loss, sum.loss);
  EXPECT_EQ(sum.num_labels, tokens - 1);
  EXPECT_TRUE(sum.correct_N.equal(expected.correct_N));
  tests::expect_within(dx, expected_dx, 1e-6);
  tests::expect_within(own.gradient({head, 1}).tensor,
                       own_part(table.row(head), whole.gradient({head, 1}).tensor, place), 1e-6);
}

TEST(TensorParallel, ABlockOnPartsOfItsMatricesIsTheBlockOnOneRank) {
  if (architecture().num_kv_heads % tests::world().size() != 0)
    GTEST_SKIP() << "each rank has whole heads";
  const model::ParameterTable table = model::lay_out(architecture());
  tests::TableWeights whole(table, at::kFloat);
  model::Ops ops(whole);
  const Results expected = run(ops, table);

  comm::MpiGroup group(tests::world(), std::make_shared<comm::Worker>(comm::Worker::Where::behind));
  const AxisPlace place = {model::tensor_axis, group.size(), group.rank()};
  tests::TableWeights own = own_weights(table, whole, place);
  TensorParallelOps parallel(own, table, group);
  const Results results = run(parallel, table);

  tests::expect_within(results.y_ND, expected.y_ND, 1e-6);
  tests::expect_within(results.dx_ND, expected.dx_ND, 1e-6);
  const model::BlockRows& rows = table.decoder.blocks.front();
  for (const model::RowRange range :
       {rows.qkv, model::RowRange{rows.attention_out, 1}, rows.feed_forward.gate_up,
        model::RowRange{rows.feed_forward.down, 1}, model::RowRange{rows.attention_norm, 1},
        model::RowRange{rows.feed_forward_norm, 1}}) {
    // Each matrix of a range is cut by itself.
    std::int64_t whole_first = 0, own_first = 0;
    for (int row = range.first; row < range.first + range.num; ++row) {
      const std::int64_t whole_size = whole.tensor(row).size(0), own_size = own.tensor(row).size(0);
      const at::Tensor of_whole = whole.gradient(range).tensor.narrow(0, whole_first, whole_size);
      const at::Tensor of_own = own.gradient(range).tensor.narrow(0, own_first, own_size);
      tests::expect_within(of_own, own_part(table.row(row), of_whole, place), 2e-6);
      whole_first += whole_size;
      own_first += own_size;
    }
  }
}

}  // namespace
}  // namespace finetune::shard::tensor_parallel_test
