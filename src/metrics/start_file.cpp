// SPDX-License-Identifier: Apache-2.0
#include "metrics/start_file.hpp"

#include <fmt/format.h>

#include <span>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

namespace finetune::metrics {
namespace {

void append(const std::filesystem::path& root, const std::string& row) {
  const std::filesystem::path path = root / start_file_name;
  try {
    const core::File file(path, core::File::Mode::create_or_write, core::ErrorKind::io);
    // A row that a full disk cut short must not take the next one with it.
    const std::int64_t size = file.size_bytes();
    std::string text = row + "\n";
    if (size > 0) {
      std::byte last{};
      file.read_at(size - 1, std::span(&last, 1));
      if (last != std::byte{'\n'}) text.insert(0, "\n");
    }
    file.write_at(size, std::as_bytes(std::span(text)));
    file.sync();
  } catch (const core::Error& error) {
    log::warn(fmt::format("finetune watch and report will not know of this: {}", error.what()));
  }
}

}  // namespace

std::string to_json(const StartRecord& r) {
  core::Json hosts = core::Json::array(), planned = core::Json::object();
  for (const std::string& host : r.hosts)
    hosts.push_back(core::printable(host));
  for (const auto& [category, bytes] : r.planned_bytes)
    planned[category] = bytes;
  return core::Json({{"start",
                      {{"unix_time_s", r.unix_time_s},
                       {"step", r.step},
                       {"num_steps", r.num_steps},
                       {"run_id", r.run_id},
                       {"model", core::printable(r.model)},
                       {"family", r.family},
                       {"method", r.method},
                       {"num_parameters", r.num_parameters},
                       {"num_trainable", r.num_trainable},
                       {"num_ranks", r.num_ranks},
                       {"num_nodes", r.num_nodes},
                       {"hosts", hosts},
                       {"device", r.device},
                       {"mesh", r.mesh},
                       {"build", core::printable(r.build)},
                       {"planned_bytes", planned},
                       {"planned_tensor_bytes", r.planned_tensor_bytes}}}})
      .dump();
}

std::string to_json(const EndRecord& r) {
  return core::Json({{"end",
                      {{"unix_time_s", r.unix_time_s},
                       {"step", r.step},
                       {"exit_code", r.exit_code},
                       {"reason", core::printable(r.reason)}}}})
      .dump();
}

void append_start(const std::filesystem::path& root, const StartRecord& record) {
  append(root, to_json(record));
}

void append_end(const std::filesystem::path& root, const EndRecord& record) {
  append(root, to_json(record));
}

}  // namespace finetune::metrics
