#pragma once
// SPDX-License-Identifier: Apache-2.0
// The output folder of a run that has everything.

#include <string>

#include "metrics/records.hpp"
#include "metrics/start_file.hpp"
#include "unit/report/folder.hpp"

namespace finetune::tests {

inline constexpr const char* hostile = "</title><script>alert('x')</script>&amp;\x1b[31m\"";

class FilledFolder : public RunFolderFixture {
 protected:
  static constexpr double now = 1.79e9 + 200;

  /// Memory of steps that were profiled.
  void put_timeline(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(folder() / "profile");
    put("profile/" + name, text);
  }

  /// A run of twenty steps with everything a folder may have; texts that come from outside are
  /// hostile.
  void fill() {
    metrics::StartRecord start{.unix_time_s = 1.79e9,
                               .step = 0,
                               .num_steps = 20,
                               .model = hostile,
                               .method = hostile,
                               .num_ranks = 4,
                               .num_nodes = 2,
                               .hosts = {"n1", hostile},
                               .planned_bytes = {{"weights", 3 << 20}, {hostile, 1 << 20}},
                               .planned_tensor_bytes = 2 << 20};
    metrics::append_start(folder(), start);
    metrics::append_end(folder(), {1.79e9 + 60, 10, 75, hostile});
    start.step = 10;
    metrics::append_start(folder(), start);
    put_timeline("memory.steps-9-12.json",
                 R"({"rank": 0, "first_step": 9, "last_step": 12, "at_s": [0, 0.5, 1.25],
                     "mib": {"weights": [1, 1, 1], "activations": [0, 2.5, 0.5],
                             "gathered": [0, 0, 0]}})");
    add("metrics.jsonl", R"({"data": {"name": ")" + std::string("<b>training</b>") +
                             R"(", "samples": 1234, "trained_share": 0.5, "histogram": [[32, 7]]}})"
                             "\n");
    for (std::int64_t step = 1; step <= 20; ++step) {
      metrics::StepRecord row{.step = step,
                              .loss = 2.0 / static_cast<double>(step),
                              .grad_norm = 1,
                              .lr = 1e-3,
                              .tokens = 64,
                              .tokens_per_s = 100.0 / 3,
                              .step_s = 0.1};
      if (step % 5 == 0) {
        row.times.emplace();
        row.times->num_steps = 5;
        row.times->parts = {{{1, 2, 3}, {0, 1, 2}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}};
        row.times->slowest_rank = 3;
        row.times->slowest_host = step == 5 ? "n1" : "n2";
        row.devices.emplace();
        for (const char* name : metrics::DeviceUse::names)
          row.devices->values[name] = {0.5, 0.75, 1};
        row.links.emplace();
        row.links->axes["fsdp"] = {{1e9, 2e9, 3e9}, hostile};
        if (step >= 10) row.links->slow = {{"fsdp", hostile, 1e9, 3e9}};
        if (step >= 10) row.devices->slow = {{2, hostile, "its clocks are lowered: heat"}};
      }
      add("metrics.jsonl", metrics::to_json(row) + "\n");
    }
    add("metrics.jsonl", metrics::to_json(metrics::ValidationRecord{20, 0.25, 0.5}) + "\n" +
                             metrics::to_json(metrics::CheckpointRecord{20, "shared", 4096}) +
                             "\n");
    for (const std::int64_t step : {0, 20})
      add("metrics.jsonl",
          metrics::to_json(metrics::EvaluationRecord{
              step, {{"arc/accuracy", step == 0 ? 0.25 : 0.5, 0.125}, {hostile, 3.5, 0.5}}}) +
              "\n");
    add("metrics.jsonl",
        R"({"step": 0, "answers": [{"prompt": "<i>q</i>", "answer": "before&", "expected": "e"}]})"
        "\n"
        R"({"step": 20, "answers": [{"prompt": "<i>q</i>", "answer": "after\nline", "expected": "e"}]})"
        "\n");
    add("metrics.jsonl",
        R"({"step": 21, "loss": 1, "mfu": 0.4, "peak_bytes": {"tensors": 1048576, "process": 2097152}})"
        "\n");
    put("input.resolved.toml", "[train]\nseed = 1\noutput = \"<deck>\"\n");
    put("finetune.log", "2026-11-25 10:51:56 warning: <w>slow</w>\n2026-11-25 10:51:56 step 1\n");
  }
};

}  // namespace finetune::tests
