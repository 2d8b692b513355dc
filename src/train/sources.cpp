// SPDX-License-Identifier: Apache-2.0
#include "train/sources.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/log.hpp"
#include "data/model_template.hpp"

namespace finetune::train {
namespace {

/// The file or folder that the deck names as data.<key>.
std::filesystem::path find_data(const Input& input, const char* key, const std::string& named) {
  const std::filesystem::path path = resolve(named, input.deck_path);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path;
  core::fail(
      core::ErrorKind::input,
      {named, "is not there",
       path.is_absolute()
           ? fmt::format("data.{} names it", key)
           : fmt::format("data.{} is looked for in the current folder and next to the deck {}", key,
                         input.deck_path.string()),
       fmt::format("Correct data.{}.", key)});
}

data::Manner manner_of(const Input& input, const Registry& registry,
                       const data::Tokenizer& tokenizer) {
  const data::DataSettings& settings = input.data;
  data::Manner manner;
  manner.train_on = settings.train_on == "all" ? data::TrainOn::all : data::TrainOn::answers;
  manner.special_names =
      settings.special_names == "tokens" ? data::SpecialNames::tokens : data::SpecialNames::text;
  manner.rewrites = settings.chat_template != "auto";
  const bool needs_template = std::any_of(
      settings.formats.begin(), settings.formats.end(),
      [&](const std::string& name) { return format_named(name, registry).needs_template; });
  if (manner.rewrites || needs_template) {
    manner.chat = data::choose_template(manner.rewrites ? settings.chat_template : "model",
                                        input.model_folder, tokenizer, registry.templates);
  }
  return manner;
}

}  // namespace

std::vector<std::unique_ptr<data::TextSource>> open_sources(const Input& input,
                                                            const Registry& registry,
                                                            const data::Tokenizer& tokenizer,
                                                            DataPart part) {
  const bool trains = part == DataPart::training;
  const auto& paths = trains ? input.data.paths : input.data.validation_paths;
  const char* key = trains ? "path" : "validation_path";
  const data::Manner manner = manner_of(input, registry, tokenizer);
  std::vector<std::unique_ptr<data::TextSource>> sources;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const data::Format& format = format_named(input.data.format_of(i), registry);
    const data::Columns& columns = input.data.columns;
    sources.push_back(std::make_unique<data::TextSource>(
        format.open(find_data(input, key, paths[i]), columns), format, columns, manner, tokenizer));
  }
  if (manner.chat && trains)
    log::info(fmt::format("conversations are written by the template \"{}\"", manner.chat->name));
  return sources;
}

std::int64_t Questions::size() const {
  std::int64_t size = 0;
  for (const auto& source : sources_)
    size += source->size();
  return size;
}

std::optional<data::Question> Questions::question(std::int64_t i) const {
  for (const auto& source : sources_) {
    if (i < source->size()) return source->question(i);
    i -= source->size();
  }
  return std::nullopt;
}

std::vector<std::int32_t> Questions::stop_ids() const {
  return sources_.empty() ? std::vector<std::int32_t>() : sources_.front()->stop_ids();
}

}  // namespace finetune::train
