// SPDX-License-Identifier: Apache-2.0
#include "train/input/grown_model.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

#include "checkpoint/run_folder.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "core/python_json.hpp"
#include "core/text.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/input/described_model.hpp"
#include "weights/export_folder.hpp"
#include "weights/folder.hpp"
#include "weights/model_files.hpp"

namespace finetune::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* stem = "new_rows";
constexpr std::int64_t largest_record_bytes = 16 << 20;

/// What the folder was made of: another deck finds the difference.
core::Json record_of(const Input& input) {
  std::error_code ignored;
  const fs::path base = fs::absolute(input.model_folder, ignored).lexically_normal();
  return {{"base", base.string()},
          {"tensors", std::string(stem) + ".safetensors"},
          {"add_tokens", input.model.new_tokens.plain},
          {"add_special_tokens", input.model.new_tokens.special},
          {"new_tokens_from", input.model.new_tokens_from},
          {"first_id", input.first_new_id}};
}

/// Ids whose rows are averaged.
std::vector<std::int64_t> averaged_ids(const Input& input, std::int64_t num_rows) {
  std::vector<std::int64_t> ids;
  if (input.model.new_tokens_from.empty()) {
    for (std::int64_t i = 0; i < std::min(input.first_new_id, num_rows); ++i)
      ids.push_back(i);
    return ids;
  }
  const auto tokenizer = tokenizer::Tokenizer::load(input.model_folder);
  for (const std::string& token : input.model.new_tokens_from) {
    const auto id = tokenizer.id(token);
    if (id && *id < num_rows) {
      ids.push_back(*id);
      continue;
    }
    core::fail(
        core::ErrorKind::input,
        {tokenizer.file().string(), fmt::format("has no token \"{}\"", core::one_line(token)),
         "model.new_tokens_from names tokens whose rows the new ones begin with",
         "Write it as the file has it, spaces for example as \"\u0120\"."});
  }
  return ids;
}

/// A matrix [V, D] of the files with the new rows.
class GrownMatrix {
 public:
  GrownMatrix(const weights::ModelFiles& files, const std::string& name, const Input& input)
      : files_(files),
        name_(name),
        shape_(files.entry(name).shape),
        first_new_(std::min(input.first_new_id, shape_[0])),
        end_new_(input.first_new_id + input.model.new_tokens.count()) {
    average(averaged_ids(input, shape_[0]));
  }

  weights::TensorSpec spec() const {
    return {name_, files_.entry(name_).dtype, {std::max(shape_[0], end_new_), shape_[1]}};
  }

  /// Elements from `first` on.
  void read(std::int64_t first, std::span<float> target) const {
    while (!target.empty()) {
      const std::int64_t row = first / shape_[1], column = first % shape_[1];
      const auto part =
          target.first(std::min(target.size(), static_cast<std::size_t>(shape_[1] - column)));
      if (row >= first_new_ && row < end_new_) {
        std::copy_n(mean_.begin() + column, part.size(), part.begin());
      } else {
        read_files(first, part);
      }
      first += std::ssize(part);
      target = target.subspan(part.size());
    }
  }

 private:
  void read_files(std::int64_t first, std::span<float> target) const {
    files_.read({.name = name_,
                 .shape = shape_,
                 .dtype = core::DType::f32,
                 .offset = first,
                 .count = std::ssize(target)},
                std::as_writable_bytes(target));
  }

  /// In one order and in double: the same on every machine.
  void average(const std::vector<std::int64_t>& ids) {
    const auto columns = static_cast<std::size_t>(shape_[1]);
    std::vector<double> sums(columns);
    std::vector<float> row(columns);
    for (const std::int64_t id : ids) {
      read_files(id * shape_[1], row);
      for (std::size_t i = 0; i < columns; ++i)
        sums[i] += row[i];
    }
    for (const double sum : sums)
      mean_.push_back(static_cast<float>(sum / static_cast<double>(ids.size())));
  }

  const weights::ModelFiles& files_;
  std::string name_;
  std::vector<std::int64_t> shape_;
  std::int64_t first_new_, end_new_;
  std::vector<float> mean_;
};

/// config.json and the tokenizer's files; and what else is read beside them.
std::map<std::string, std::string> texts_of(const Input& input) {
  std::map<std::string, std::string> texts =
      tokenizer::texts_with(input.model_folder, input.model.new_tokens);
  core::Json config =
      core::read_python_json(input.model_folder / "config.json", core::largest_config_bytes);
  set_vocab_size(input.architecture.vocab_size, config);
  texts["config.json"] = core::dump_python_json(config);
  texts[weights::changes_name] = record_of(input).dump(2) + "\n";
  constexpr const char* quantisation = "quantize_config.json";
  if (weights::is_in_folder(input.model_folder, quantisation))
    texts[quantisation] =
        weights::read_text_in_folder(input.model_folder, quantisation, core::largest_config_bytes);
  return texts;
}

void write(const Input& input, const fs::path& out) {
  const auto files = weights::ModelFiles::open(input.model_folder);
  std::map<std::string, GrownMatrix, std::less<>> matrices;
  weights::ExportPlan plan;
  plan.stem = stem;
  plan.max_shard_size_bytes = std::numeric_limits<std::int64_t>::max();
  plan.texts = texts_of(input);
  for (const model::Parameter& row : input.parameters.rows) {
    const bool is_of_vocabulary =
        model::is_looked_up(row.role) ||
        (row.role == model::Role::head && row.shape[0] == input.architecture.vocab_size);
    if (!is_of_vocabulary) continue;
    const auto made = matrices.emplace(row.name, GrownMatrix(files, row.name, input)).first;
    plan.tensors.push_back(made->second.spec());
  }
  weights::export_folder(
      out, plan,
      [&](std::string_view name, std::int64_t first, std::span<float> piece) {
        matrices.find(name)->second.read(first, piece);
      },
      input.model_folder);
  log::info(fmt::format("wrote {}: {} with {} more tokens, from id {} on", out.string(),
                        input.model_folder.string(), input.model.new_tokens.count(),
                        input.first_new_id));
}

void require_same(const Input& input, const fs::path& out) {
  const core::Json there = core::read_json(out / weights::changes_name, largest_record_bytes);
  const core::Json wanted = record_of(input);
  for (const auto& [key, value] : wanted.items()) {
    if (there.value(key, core::Json()) == value) continue;
    core::fail(
        core::ErrorKind::deck,
        {input.deck_path.string(), fmt::format("{} was made with another {}", out.string(), key),
         fmt::format("it has {}, the deck {}", there.value(key, core::Json()).dump(), value.dump()),
         "Restore the deck, or set another train.output."});
  }
}

}  // namespace

std::int64_t find_first_new_id(const comm::Communicator& world, const ModelSettings& settings,
                               const fs::path& model_folder) {
  if (!settings.new_tokens.any()) return 0;
  const std::int64_t first = comm::agree(world, [&] {
    return world.is_root() ? tokenizer::first_new_id(model_folder, settings.new_tokens)
                           : std::int64_t{0};
  });
  return world.all_reduce(first, comm::Reduce::max);
}

void grow_model(const comm::Communicator& world, Input& input) {
  if (!input.model.new_tokens.any()) return;
  const fs::path out = fs::path(input.train.output) / checkpoint::grown_model_name;
  comm::agree_all(world, [&] {
    if (!world.is_root()) return;
    std::error_code ignored;
    if (fs::exists(out / weights::changes_name, ignored)) {
      require_same(input, out);
    } else {
      // As the folders of checkpoints, of which it is one part.
      ::umask(0777 & ~checkpoint::folder_mode(input.checkpoint.access));
      write(input, out);
    }
  });
  input.model_folder = out;
}

}  // namespace finetune::train
