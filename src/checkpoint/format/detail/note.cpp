// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/detail/note.hpp"

#include "checkpoint/format/detail/aside.hpp"
#include "checkpoint/format/detail/folder.hpp"
#include "core/file.hpp"

namespace finetune::checkpoint {
namespace {

constexpr std::int64_t largest_note_bytes = 1 << 20;

}  // namespace

std::optional<RunNote> read_note(const std::filesystem::path& root) {
  const std::filesystem::path path = root / note_name;
  try {
    const core::Json json =
        core::parse_json(read_regular_file(path, largest_note_bytes), path.string());
    RunNote note{.id = json.at("id").get<std::string>(),
                 .fingerprint = json.at("fingerprint").get<std::string>(),
                 .step = json.at("step").get<std::int64_t>(),
                 .starts = json.at("starts").get<std::int64_t>(),
                 .choice = json.value("choice", core::Json()),
                 .leaves_to = json.value("leaves_to", std::string())};
    if (const auto lineage = json.find("lineage"); lineage != json.end())
      note.lineage = Lineage::from_json(*lineage);
    if (!is_branch_folder(note.leaves_to)) note.leaves_to.clear();
    return note;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void write_note(const std::filesystem::path& root, const RunNote& note) {
  core::Json json = {{"id", note.id},
                     {"fingerprint", note.fingerprint},
                     {"step", note.step},
                     {"starts", note.starts}};
  if (!note.choice.is_null()) json["choice"] = note.choice;
  if (note.lineage) json["lineage"] = note.lineage->to_json();
  if (!note.leaves_to.empty()) json["leaves_to"] = note.leaves_to;
  core::write_text_atomically(root / note_name, json.dump() + "\n");
}

}  // namespace finetune::checkpoint
