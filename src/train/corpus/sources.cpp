// SPDX-License-Identifier: Apache-2.0
#include "train/corpus/sources.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "data/records/records.hpp"
#include "data/text/columns.hpp"
#include "data/text/detect_format.hpp"
#include "data/text/end_tokens.hpp"
#include "data/text/listing.hpp"
#include "data/text/model_template.hpp"
#include "train/corpus/detail/labels.hpp"
#include "train/input/input.hpp"

namespace finetune::train {
namespace {

/// A pattern that begins in the current folder, or next to the deck if nothing here matches.
std::filesystem::path find_pattern(const std::filesystem::path& named,
                                   const std::filesystem::path& deck) {
  if (named.is_absolute() || !data::matching_files(named).empty()) return named;
  std::error_code ignored;
  const std::filesystem::path folder = deck.parent_path() / data::folder_of_pattern(named);
  std::filesystem::path beside = deck.parent_path() / named;
  if (std::filesystem::equivalent(folder, folder.lexically_normal(), ignored))
    beside = beside.lexically_normal();
  // What matches nowhere is reported with what lies in its folder, where there is one.
  const bool is_here = std::filesystem::exists(data::folder_of_pattern(named), ignored);
  return is_here && data::matching_files(beside).empty() ? named : beside;
}

/// The file or folder that the deck names as data.<key>.
std::filesystem::path find_data(const DataInput& input, const char* key, const std::string& named) {
  const std::filesystem::path path = data::record_file(resolve(named, input.deck_path));
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path;
  // The beginning of the names of two files is none itself.
  const auto index = resolve(named + ".idx", input.deck_path);
  if (std::filesystem::exists(index, ignored)) return index;
  if (data::is_pattern(named)) return find_pattern(named, input.deck_path);
  core::fail(
      core::ErrorKind::input,
      {named, "is not there",
       path.is_absolute()
           ? fmt::format("data.{} names it", key)
           : fmt::format("data.{} is looked for in the current folder and next to the deck {}", key,
                         input.deck_path.string()),
       fmt::format("Correct data.{}.", key)});
}

/// The i-th of data.path, or of data.validation_path.
data::DataPath data_path(const DataInput& input, DataPart part, std::size_t i) {
  const data::DataSettings& settings = input.settings;
  data::DataPath where =
      part == DataPart::training
          ? data::DataPath(find_data(input, "path", settings.paths[i]), settings.split)
          : data::DataPath::validation(
                find_data(input, "validation_path", settings.validation_paths[i]),
                settings.validation_split);
  std::error_code ignored;
  if (std::filesystem::is_directory(where.path, ignored)) where.subset = settings.subset;
  if (where.subset.empty() && !settings.subset.empty() && settings.paths.size() == 1)
    core::fail(core::ErrorKind::input,
               {where.path.string(), fmt::format("data.subset is \"{}\"", settings.subset),
                "it is a data set of a folder, and this is none", "Remove data.subset."});
  return where;
}

std::string shortened(const std::vector<std::string>& names) {
  constexpr std::size_t most = 4;
  const std::vector<std::string> first(names.begin(), names.begin() + std::min(most, names.size()));
  return core::one_line(
      fmt::format("{}{}", fmt::join(first, ", "), names.size() > most ? ", ..." : ""));
}

/// No file is trained on twice in a pass unless data.weights says so, and what a model has learnt
/// tells nothing of others.
void require_other_files(const DataInput& input, DataPart part,
                         const std::vector<std::unique_ptr<data::TextSource>>& sources) {
  const char* key = part == DataPart::training ? "data.path" : "data.validation_path";
  std::vector<std::filesystem::path> files;
  for (const auto& source : sources)
    for (const std::filesystem::path& file : source->files())
      files.push_back(file);
  data::require_distinct(
      files,
      fmt::format("Name it once in {}; data.weights says how often a data set is read.", key));
  if (part == DataPart::training) return;
  for (std::size_t i = 0; i < input.settings.paths.size(); ++i) {
    for (const auto& trained : data::data_files(data_path(input, DataPart::training, i))) {
      std::error_code ignored;
      for (const auto& file : files)
        if (std::filesystem::equivalent(trained, file, ignored))
          log::warn(
              fmt::format("{}: is trained on and validated on: its loss says nothing of other "
                          "texts. Name other files in data.validation_path.",
                          file.string()));
    }
  }
}

/// Which files of a folder are read, where their names tell splits.
void tell_split(const DataInput& input, const data::DataPath& where,
                const data::SampleReader& reader, DataPart part) {
  if (!data::is_several(where)) return;
  const data::SplitFiles files = data::choose_data_files(where);
  if (files.others.empty()) {
    const auto read = reader.files();
    log::info(fmt::format("{}: {} read, {} to {}", where.path.string(),
                          read.size() == 1 ? "1 file" : fmt::format("{} files", read.size()),
                          read.front().string(), read.back().string()));
    return;
  }
  std::string left_out;
  for (const auto& [split, names] : files.others)
    left_out += fmt::format("{}{}: {}", left_out.empty() ? "" : "; ", split, shortened(names));
  log::info(fmt::format(
      "{}: {} of split \"{}\" read ({} = \"{}\"), others left out ({})", where.path.string(),
      reader.files().size() == 1 ? "1 file" : fmt::format("{} files", reader.files().size()),
      files.split, where.key, where.split, left_out));
  const bool has_validation = files.others.contains("validation");
  const bool validates =
      !input.settings.validation_paths.empty() || input.settings.validation_fraction > 0;
  if (part == DataPart::training && has_validation && !validates) {
    log::info(
        fmt::format("{}: a validation split lies there and is not used. Set "
                    "data.validation_path = \"{}\" to validate on it.",
                    where.path.string(), where.path.string()));
  }
}

/// Answers may be texts, which need none.
std::optional<data::ChatTemplate> template_if_any(const DataInput& input, const Registry& registry,
                                                  const tokenizer::Tokenizer& tokenizer) {
  try {
    return chat_template_of(input, registry, tokenizer);
  } catch (const core::Error&) {
    if (input.settings.chat_template != "auto") throw;
    return std::nullopt;
  }
}

data::TokenizePolicy manner_of(const DataInput& input, const Registry& registry,
                               const tokenizer::Tokenizer& tokenizer,
                               const std::vector<std::string>& formats) {
  const data::DataSettings& settings = input.settings;
  data::TokenizePolicy policy;
  policy.train_on = settings.train_on;
  policy.special_names = settings.special_names;
  if (input.architecture.outputs.are_of_texts()) {
    policy.labels = label_coder(input.architecture.outputs, input.labels);
    if (input.architecture.outputs.kind == model::HeadKind::reward)
      policy.chat = template_if_any(input, registry, tokenizer);
    return policy;
  }
  policy.ends = data::end_tokens(input.model_folder, tokenizer);
  policy.rewrites = settings.chat_template != "auto";
  const bool needs_template = std::any_of(
      formats.begin(), formats.end(),
      [&](const std::string& name) { return format_named(name, registry).needs_template; });
  // Ids without a tokenizer are written already.
  if ((policy.rewrites && !tokenizer.has_ids_only()) || needs_template)
    policy.chat = chat_template_of(input, registry, tokenizer);
  return policy;
}

/// Whether a head of this kind learns from data of the format.
bool is_learnt_from(const data::Format& format, model::HeadKind kind) {
  if (kind == model::HeadKind::reward) return format.has_pairs;
  return format.has_labels == (kind != model::HeadKind::next_token) && !format.has_pairs;
}

[[noreturn]] void refuse_format(const DataInput& input, const Registry& registry,
                                const std::string& named) {
  const model::HeadKind kind = input.architecture.outputs.kind;
  std::string fitting;
  for (const data::Format& format : registry.formats)
    if (is_learnt_from(format, kind)) fitting = format.name;
  const bool learns_text = kind == model::HeadKind::next_token;
  throw comm::AgreedError(
      core::ErrorKind::deck,
      core::to_string(
          {input.deck_path.string(), fmt::format("data.format = \"{}\"", named),
           fmt::format("model.problem_type = \"{}\" learns {}", model::problem_type(kind),
                       learns_text                       ? "to continue text"
                       : kind == model::HeadKind::reward ? "which of two texts is preferred"
                                                         : "labels of texts"),
           learns_text ? "Set model.problem_type, or another format."
                       : fmt::format("Set data.format = \"{}\".", fitting)}));
}

/// The format of one path. Collective on `world`.
std::string find_format(const comm::Communicator& world, const DataInput& input,
                        const Registry& registry, DataPart part, std::size_t i,
                        DataFormats& formats) {
  const std::string& named = input.settings.format_of(i);
  const model::HeadKind kind = input.architecture.outputs.kind;
  if (named != data::auto_format) {
    if (!is_learnt_from(format_named(named, registry), kind)) refuse_format(input, registry, named);
    return named;
  }
  // Nothing else can be learnt from.
  for (const data::Format& format : registry.formats)
    if (kind != model::HeadKind::next_token && is_learnt_from(format, kind)) return format.name;
  return world.broadcast_text(comm::agree(world, [&] {
    if (!world.is_root()) return std::string();
    const data::DataPath where = data_path(input, part, i);
    const auto found = data::detect_format(where, input.settings.columns, registry.formats);
    formats.opened.push_back(found.opened);
    log::info(
        fmt::format("{}: data.format is \"{}\" ({})", where.path.string(), found.name, found.why));
    return found.name;
  }));
}

/// Of all formats together: what one does not read, another may.
void require_columns(const DataInput& input, const Registry& registry, const DataFormats& found) {
  std::vector<const data::Format*> formats;
  for (const auto* names : {&found.training, &found.validation})
    for (const std::string& name : *names)
      formats.push_back(&format_named(name, registry));
  if (const auto problem = data::column_problem(input.settings.columns, formats))
    throw comm::AgreedError(core::ErrorKind::deck,
                            core::to_string({input.deck_path.string(), problem->problem,
                                             problem->why, problem->remedy}));
}

}  // namespace

data::ChatTemplate chat_template_of(const DataInput& input, const Registry& registry,
                                    const tokenizer::Tokenizer& tokenizer) {
  const data::DataSettings& settings = input.settings;
  std::string name = settings.chat_template == "auto" ? "model" : settings.chat_template;
  if (name == "model" && !settings.model_template.empty()) name += ":" + settings.model_template;
  return data::choose_template(name, input.model_folder, tokenizer, registry.templates);
}

std::size_t num_paths(const DataInput& input, DataPart part) {
  return (part == DataPart::training ? input.settings.paths : input.settings.validation_paths)
      .size();
}

void require_path(const DataInput& input, DataPart part, std::size_t i) {
  (void)data_path(input, part, i);
}

DataInput data_input(const Input& input) {
  return {.settings = input.data,
          .deck_path = input.deck_path,
          .model_folder = input.model_folder,
          .architecture = input.architecture,
          .seed = static_cast<std::uint64_t>(input.train.seed),
          .labels = input.model.labels};
}

bool DataFormats::are_tokens(const Registry& registry) const {
  const auto has_tokens = [&](const std::string& name) {
    return format_named(name, registry).has_tokens;
  };
  return std::ranges::all_of(training, has_tokens) && std::ranges::all_of(validation, has_tokens);
}

std::vector<std::string> DataFormats::all() const {
  std::vector<std::string> names = training;
  names.insert(names.end(), validation.begin(), validation.end());
  return names;
}

DataFormats find_formats(const comm::Communicator& world, const DataInput& input,
                         const Registry& registry) {
  DataFormats formats;
  for (std::size_t i = 0; i < input.settings.paths.size(); ++i)
    formats.training.push_back(find_format(world, input, registry, DataPart::training, i, formats));
  for (std::size_t i = 0; i < input.settings.validation_paths.size(); ++i)
    formats.validation.push_back(
        find_format(world, input, registry, DataPart::validation, i, formats));
  require_columns(input, registry, formats);
  return formats;
}

std::vector<std::unique_ptr<data::TextSource>> open_sources(const DataInput& input,
                                                            const Registry& registry,
                                                            const tokenizer::Tokenizer& tokenizer,
                                                            const DataFormats& formats,
                                                            DataPart part) {
  const bool trains = part == DataPart::training;
  const auto& names = trains ? formats.training : formats.validation;
  const data::TokenizePolicy policy = manner_of(input, registry, tokenizer, formats.all());
  std::vector<std::unique_ptr<data::TextSource>> sources;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const data::Format& format = format_named(names[i], registry);
    const data::Columns& columns = input.settings.columns;
    const data::DataPath where = data_path(input, part, i);
    auto reader = format.open(where, columns);
    tell_split(input, where, *reader, part);
    sources.push_back(
        std::make_unique<data::TextSource>(std::move(reader), format, columns, policy, tokenizer));
  }
  require_other_files(input, part, sources);
  if (policy.chat && trains) {
    log::info("conversations are written by " + data::in_words(*policy.chat));
    for (const std::string& line :
         data::unread_names(*policy.chat, input.settings.columns.template_kwargs))
      log::warn("data.template_kwargs: " + line);
  }
  return sources;
}

std::unique_ptr<data::TextSource> open_source(const DataInput& input, const Registry& registry,
                                              const tokenizer::Tokenizer& tokenizer,
                                              const DataFormats& formats, DataPart part,
                                              std::size_t i) {
  const auto& names = part == DataPart::training ? formats.training : formats.validation;
  const data::Format& format = format_named(names[i], registry);
  const data::Columns& columns = input.settings.columns;
  return std::make_unique<data::TextSource>(
      format.open(data_path(input, part, i), columns), format, columns,
      manner_of(input, registry, tokenizer, formats.all()), tokenizer);
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
