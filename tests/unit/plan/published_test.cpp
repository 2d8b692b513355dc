// SPDX-License-Identifier: Apache-2.0
// Planned speeds beside published ones: one machine file for all rows of a machine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "plan/machine/machine_file.hpp"
#include "support/folders.hpp"
#include "unit/plan/published_rows.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::published_test {
namespace {

using tests::Published;
using tests::published_rows;

constexpr double near = 1.25;

TimePlan planned(const Published& row) {
  // The program has no FP8, so that machine is not shipped.
  const bool is_fp8 = row.machine == std::string("fp8");
  Machine machine = is_fp8
                        ? read_machine("h100-8-fp8", tests::source_folder() / "tests/golden/plan")
                        : read_machine(row.machine, tests::source_folder() / "inputs/machines");
  if (row.inter_gb_per_s > 0) machine.inter_gb_per_s = row.inter_gb_per_s;
  PlanInput request = tests::adamw_request();
  request.architecture = tests::architecture_of(row.size);
  request.parallel.sharding = sharding_named(row.sharding);
  request.numbers.reduce = core::DType::bf16;
  request.activation_checkpointing = row.checkpointing;
  request.on_gpu = true;
  request.ranks = tests::ranks_on_nodes(row.ranks, 8);
  request.micro_batch = row.micro_batch;
  request.max_seq_length = row.length;
  request.global_batch = row.micro_batch * row.ranks / (row.tp * row.cp) * row.accumulation;
  request.parallel.tp = row.tp;
  request.parallel.cp = row.cp;
  request.sample_tokens = row.sample_tokens;
  if (row.is_fp8) request.numbers.fp8 = model::Fp8Recipe{};
  const tests::DecoderTable table(request.architecture, row.training);
  return plan_time(make(request, table.table()), request, table.table(), machine, row.passes);
}

/// At least one, whichever of them is larger.
double factor(double a, double b) {
  return std::max(a / b, b / a);
}

std::string text(const Published& row, double tokens_per_s) {
  return fmt::format("{:24} {:24} {:12} {:3} ranks: published {:8.0f} planned {:8.0f} ({:.2f}){}",
                     row.system, row.what, row.machine, row.ranks, row.tokens_per_s, tokens_per_s,
                     tokens_per_s / row.tokens_per_s,
                     row.use.missed > 1   ? " MISSED"
                     : row.use.sets_rates ? " sets rates"
                                          : "");
}

TEST(PublishedSpeeds, ArePlannedWithin25PercentOrAsFarOffAsIsKnown) {
  for (const Published& row : published_rows()) {
    const double tokens_per_s = planned(row).tokens_per_s_of_rank;
    fmt::print("{}\n", text(row, tokens_per_s));
    const double off = factor(tokens_per_s, row.tokens_per_s);
    EXPECT_LE(off, row.use.missed > 1 ? row.use.missed + 0.02 : near) << text(row, tokens_per_s);
    if (row.use.missed > 1) {
      EXPECT_GT(off, near) << "this row is no longer missed: " << text(row, tokens_per_s);
    }
  }
}

TEST(PublishedSpeeds, TenRowsOfFiveSystemsArePredictedWithoutHavingSetARate) {
  int num_rows = 0;
  std::set<std::string> systems;
  for (const Published& row : published_rows()) {
    const bool is_near = factor(planned(row).tokens_per_s_of_rank, row.tokens_per_s) <= near;
    if (row.use.sets_rates || !is_near) continue;
    ++num_rows;
    systems.insert(row.system);
  }
  EXPECT_GE(num_rows, 10);
  EXPECT_GE(systems.size(), 5U);
}

}  // namespace
}  // namespace finetune::plan::published_test
