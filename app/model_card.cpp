// SPDX-License-Identifier: Apache-2.0
#include "model_card.hpp"

#include <fmt/format.h>

#include <regex>
#include <string_view>

#include "checkpoint/format/layout.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "deck/document.hpp"
#include "report/pictures.hpp"
#include "report/run_history.hpp"
#include "weights/folder.hpp"
#include "weights/model_files.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;

/// The last part of a path, whether or not a slash ends it; "unknown" without one.
std::string last_name(const fs::path& path) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  const std::string name = clean.filename().string();
  return name.empty() || name == "." || name == ".." ? "unknown" : name;
}

/// `text` for one line of Markdown outside code.
std::string in_line(const std::string& text) {
  std::string line;
  for (const char c : core::printable(text)) {
    if (std::string_view("\\`*_|<>[]#").find(c) != std::string_view::npos) line += '\\';
    line += c == '\n' || c == '\t' ? ' ' : c;
  }
  return line;
}

/// File names of the training and the validation data; empty if the deck cannot be read.
std::vector<std::pair<std::string, std::string>> data_files(const checkpoint::RunState& state) {
  std::vector<std::pair<std::string, std::string>> files;
  try {
    const deck::Document document = deck::parse({"deck", state.deck});
    for (const auto& [key, what] :
         {std::pair("path", "trained on"), std::pair("validation_path", "validated on")}) {
      const deck::Value* value = document.find("data", key);
      if (value != nullptr && !value->text.empty())
        files.emplace_back(what, last_name(value->text));
    }
  } catch (const core::Error&) {
    // A card without them is better than no export.
  }
  return files;
}

/// The settings that the run's result rests on, as lines of a deck; those with a path left out.
std::string settings_lines(const checkpoint::RunState& state) {
  std::string lines;
  for (const auto& [key, text] : state.fixed) {
    if (key.ends_with("path") || text.find_first_of("/\\`\n") != std::string::npos) continue;
    lines += fmt::format("{} = {}\n", key, core::printable(text));
  }
  return lines;
}

}  // namespace

std::string base_model_name(const core::Json& config, const fs::path& folder) {
  if (weights::is_in_folder(folder, weights::changes_name)) {
    const core::Json changes = core::read_json(folder / weights::changes_name, 16 << 20);
    return base_model_name(config, changes.at("base").get<std::string>());
  }
  static const std::regex hub_name("[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*");
  static const std::regex cached(
      "models--([A-Za-z0-9][A-Za-z0-9._-]*)--([A-Za-z0-9][A-Za-z0-9._-]*)");
  const auto field = config.find("_name_or_path");
  if (field != config.end() && field->is_string() &&
      std::regex_match(field->get<std::string>(), hub_name))
    return field->get<std::string>();
  // As in the cache of huggingface_hub: models--org--name/snapshots/<revision>
  for (const fs::path& part : folder) {
    const std::string name = part.string();
    std::smatch match;
    if (std::regex_match(name, match, cached)) return match[1].str() + "/" + match[2].str();
  }
  return last_name(folder);
}

RunRecord read_record(const fs::path& run, std::int64_t step) {
  RunRecord record;
  try {
    const fs::path results = run / "evaluations" / checkpoint::folder_name(step) / "results.json";
    std::error_code ignored;
    if (fs::exists(results, ignored))
      record.evaluation = core::read_json(results, 64 << 20).value("table", "");
    const report::RunHistory history[] = {report::read_run(run)};
    const auto pictures = report::pictures("loss", history);
    if (!pictures.empty()) record.loss_svg = report::to_svg_file(pictures.front());
  } catch (const std::exception&) {
    // A card without them is better than no export.
  }
  return record;
}

std::string model_card(const checkpoint::RunState& state, const std::string& base_model,
                       const RunRecord& record, const std::string& library) {
  const std::string name = in_line(base_model);
  std::string card = fmt::format(
      "---\n"
      "base_model: {}\n"
      "library_name: {}\n"
      "# license: yours to add; it has to agree with that of the base model and of the data\n"
      "---\n\n"
      "# {}, fine-tuned\n\n"
      "What it is for, what it was trained on and what it cannot do: yours to add.\n\n"
      "| | |\n|---|---|\n"
      "| base model | {} |\n",
      core::Json(base_model).dump(), library, name, name);
  for (const auto& [what, file] : data_files(state))
    card += fmt::format("| {} | {} |\n", what, in_line(file));
  if (!state.data_fingerprint.empty())
    card += fmt::format("| hash of the training tokens | {} |\n", in_line(state.data_fingerprint));
  if (!record.weights.empty()) card += fmt::format("| weights | {} |\n", record.weights);
  card += fmt::format("| optimizer steps | {} |\n", state.step);
  if (state.total_samples)
    card += fmt::format("| samples trained on | {} |\n", core::with_commas(*state.total_samples));
  if (state.total_tokens)
    card += fmt::format("| tokens | {} |\n", core::with_commas(*state.total_tokens));
  if (state.validation_loss)
    card += fmt::format("| validation loss | {:.6g} |\n", *state.validation_loss);
  if (state.score && state.score->name != checkpoint::validation_loss_name)
    card += fmt::format("| {} | {:.6g} |\n", in_line(state.score->name), state.score->value);
  card +=
      fmt::format("| made with | {} |\n", in_line(state.build.substr(0, state.build.find(';'))));
  if (!record.evaluation.empty())
    card +=
        fmt::format("\n## Evaluation\n\nBefore training (step 0) and after it:\n\n```text\n{}```\n",
                    core::printable(record.evaluation));
  if (!record.loss_svg.empty())
    card += fmt::format("\n## Training\n\n![loss by step]({})\n", loss_picture_name);
  if (const std::string lines = settings_lines(state); !lines.empty())
    card += fmt::format("\nSettings of the run:\n\n```toml\n{}```\n", lines);
  return card;
}

std::string generation_config(const core::Json& config) {
  core::Json result = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const auto id = config.find(key);
    if (id != config.end() && !id->is_null()) result[key] = *id;
  }
  return result.dump(2) + "\n";
}

}  // namespace finetune::app
