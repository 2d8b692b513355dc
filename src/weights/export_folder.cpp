// SPDX-License-Identifier: Apache-2.0
#include "weights/export_folder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "core/dtype.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "core/tensor_slice.hpp"
#include "weights/detail/names.hpp"
#include "weights/folder.hpp"

namespace finetune::weights {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t piece_elements = (16 << 20) / 4;

[[noreturn]] void fail_create(const fs::path& where, const std::string& problem,
                              const std::string& why, const std::string& remedy) {
  core::fail(core::ErrorKind::create, {where.string(), problem, why, remedy});
}

/// A new folder that disappears with its contents unless it is committed.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {
    std::error_code problem;
    if (fs::create_directory(path_, problem)) return;
    fail_create(path_, "cannot be created", problem ? problem.message() : "it exists",
                problem ? "Check the path and its permissions." : "Remove it.");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!committed_) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }

  /// Renames the folder to `target`, which is missing or an empty folder.
  void commit(const fs::path& target) {
    core::sync_folder(path_);
    if (::rename(path_.c_str(), target.c_str()) != 0) {
      fail_create(target, "cannot be created", core::system_reason(),
                  "Check the path and its permissions.");
    }
    committed_ = true;
    core::sync_folder(target.parent_path());
  }

 private:
  fs::path path_;
  bool committed_ = false;
};

/// The absolute path of the folder to make; its parent exists afterwards.
fs::path prepare(const fs::path& out) {
  std::error_code problem;
  fs::path target = fs::absolute(out, problem);
  if (!problem) target = fs::weakly_canonical(target, problem);
  if (problem) fail_create(out, "cannot be created", problem.message(), "Check the path.");
  if (!target.has_filename()) target = target.parent_path();
  if (fs::exists(target, problem)) {
    if (!fs::is_directory(target, problem))
      fail_create(out, "is not a folder", "the model becomes a folder", "Choose another path.");
    if (!fs::is_empty(target, problem)) {
      fail_create(out, "is not empty", "nothing is overwritten",
                  "Remove it or choose another folder.");
    }
    return target;
  }
  fs::create_directories(target.parent_path(), problem);
  if (problem) {
    fail_create(target.parent_path(), "cannot be created", problem.message(),
                "Check the path and its permissions.");
  }
  return target;
}

bool describes_model(const std::string& name) {
  constexpr std::array names = {"config.json",
                                "generation_config.json",
                                "special_tokens_map.json",
                                "added_tokens.json",
                                "vocab.json",
                                "vocab.txt",
                                "merges.txt",
                                "chat_template.jinja",
                                "chat_template.json"};
  if (std::ranges::find(names, name) != names.end()) return true;
  if (name.starts_with("tokenizer") && name.ends_with(".json")) return true;
  return name.ends_with(".model");
}

void copy_file(const fs::path& folder, const std::string& name, const fs::path& target) {
  const core::File source = open_in_folder(folder, name);
  const core::File copy(target / name, core::File::Mode::create_new, core::ErrorKind::create);
  std::vector<std::byte> buffer(1 << 20);
  const std::int64_t size = source.size_bytes();
  for (std::int64_t done = 0; done < size;) {
    const auto piece = std::span(buffer).first(
        static_cast<std::size_t>(std::min(size - done, static_cast<std::int64_t>(buffer.size()))));
    source.read_at(done, piece);
    copy.write_at(done, piece);
    done += std::ssize(piece);
  }
  copy.sync();
}

/// Chat templates beside the model's default.
void copy_templates(const fs::path& folder, const fs::path& target,
                    const std::map<std::string, std::string>& in_place) {
  constexpr const char* name = "additional_chat_templates";
  std::error_code ignored, problem;
  if (!fs::is_directory(folder / name, ignored)) return;
  fs::create_directory(target / name, problem);
  if (problem)
    fail_create(target / name, "cannot be created", problem.message(),
                "Check the path and its permissions.");
  for (fs::directory_iterator i(folder / name, ignored), end; !ignored && i != end;
       i.increment(ignored))
    if (const std::string file = i->path().filename().string();
        file.ends_with(".jinja") && !in_place.contains(fmt::format("{}/{}", name, file)))
      copy_file(folder / name, file, target / name);
}

void copy_description(const fs::path& folder, const fs::path& target,
                      const std::map<std::string, std::string>& in_place) {
  std::error_code problem;
  std::vector<std::string> names;
  for (fs::directory_iterator i(folder, problem), end; !problem && i != end; i.increment(problem))
    names.push_back(i->path().filename().string());
  if (problem) {
    core::fail(core::ErrorKind::input, {folder.string(), "cannot be listed", problem.message(),
                                        "Configuration and tokenizer are copied from there."});
  }
  std::ranges::sort(names);
  for (const std::string& name : names) {
    if (describes_model(name) && !in_place.contains(name)) copy_file(folder, name, target);
  }
  copy_templates(folder, target, in_place);
}

/// F16 ends at 65504: rounding beyond would put an infinity into the model without a word.
void check_range(const TensorSpec& tensor, std::span<const float> piece) {
  if (tensor.dtype != core::DType::f16) return;
  constexpr float overflow = 65520.0f;  // the first value that rounds to infinity
  for (const float value : piece) {
    if (!std::isfinite(value) || std::abs(value) < overflow) continue;
    core::fail(core::ErrorKind::numbers,
               {"tensor " + in_quotes(tensor.name), fmt::format("holds {}", value),
                "F16 ends at 65504", "Export as BF16 or F32."});
  }
}

/// Elements of a tensor, from where they come to the bytes to write.
using Fill = std::function<std::span<const std::byte>(const TensorSpec& tensor, std::int64_t first,
                                                      std::int64_t count)>;

void write_tensor(SafetensorsWriter& writer, const TensorSpec& tensor, const Fill& fill) {
  const std::int64_t elements = core::num_elements(tensor.shape);
  for (std::int64_t first = 0; first < elements; first += piece_elements) {
    core::fault::hit("export.piece", tensor.name);
    writer.write(tensor.name, fill(tensor, first, std::min(elements - first, piece_elements)));
  }
}

/// Reads fp32 and rounds.
class Rounding {
 public:
  Rounding(const ReadPiece& read_piece, const std::set<std::string, std::less<>>& transposed)
      : read_piece_(read_piece), transposed_(transposed) {}

  std::span<const std::byte> operator()(const TensorSpec& tensor, std::int64_t first,
                                        std::int64_t count) {
    values_.resize(static_cast<std::size_t>(count));
    if (transposed_.contains(tensor.name))
      read_transposed(tensor, first);
    else
      read_piece_(tensor.name, first, values_);
    check_range(tensor, values_);
    const auto bytes = std::as_bytes(std::span(values_));
    if (tensor.dtype == core::DType::f32) return bytes;
    rounded_.resize(values_.size() * static_cast<std::size_t>(core::size_bytes(tensor.dtype)));
    core::convert(core::DType::f32, bytes, tensor.dtype, rounded_);
    return rounded_;
  }

 private:
  /// `tensor` [in, out] of what is there as [out, in], which is whole in memory meanwhile.
  void read_transposed(const TensorSpec& tensor, std::int64_t first) {
    const std::int64_t inputs = tensor.shape[0], outputs = tensor.shape[1];
    if (first == 0) {
      whole_.resize(static_cast<std::size_t>(inputs * outputs));
      for (std::int64_t at = 0; at < inputs * outputs; at += piece_elements)
        read_piece_(tensor.name, at,
                    std::span(whole_).subspan(
                        static_cast<std::size_t>(at),
                        static_cast<std::size_t>(std::min(piece_elements, inputs * outputs - at))));
    }
    for (float& value : values_) {
      const std::int64_t input = first / outputs, output = first % outputs;
      value = whole_[static_cast<std::size_t>(output * inputs + input)];
      ++first;
    }
  }

  const ReadPiece& read_piece_;
  const std::set<std::string, std::less<>>& transposed_;
  std::vector<float> whole_;
  std::vector<float> values_;
  std::vector<std::byte> rounded_;
};

void write_index(const fs::path& folder, const std::string& stem,
                 const std::vector<ExportFile>& files) {
  core::Json weight_map = core::Json::object();
  std::int64_t total_bytes = 0;
  std::int64_t total_parameters = 0;
  for (const ExportFile& file : files) {
    for (const TensorSpec& tensor : file.tensors) {
      weight_map[tensor.name] = file.name;
      total_bytes += tensor.size_bytes();
      total_parameters += core::num_elements(tensor.shape);
    }
  }
  const core::Json index = {
      {"metadata", {{"total_parameters", total_parameters}, {"total_size", total_bytes}}},
      {"weight_map", std::move(weight_map)}};
  core::write_text_atomically(folder / (stem + ".safetensors.index.json"), index.dump(2) + "\n");
}

/// As xxhsum writes it: `xxhsum -c` compares.
void write_sums(const fs::path& folder, const std::string& name) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  std::string lines;
  for (const fs::path& file : files)
    lines += fmt::format("{}  {}\n", core::file_fingerprint(file),
                         file.lexically_relative(folder).string());
  core::write_text_atomically(folder / name, lines);
}

void write_folder(const fs::path& out, const ExportPlan& plan, const Fill& fill,
                  const fs::path& copy_from) {
  const fs::path target = prepare(out);
  TemporaryFolder folder(target.string() + fmt::format(".tmp.{}", ::getpid()));
  if (!copy_from.empty()) copy_description(copy_from, folder.path(), plan.texts);
  for (const auto& [name, text] : plan.texts) {
    fs::create_directories((folder.path() / name).parent_path());
    core::write_text_atomically(folder.path() / name, text);
  }
  const std::vector<ExportFile> files = plan_files(plan);
  for (const ExportFile& file : files) {
    SafetensorsWriter writer(folder.path() / file.name, file.tensors);
    for (const TensorSpec& tensor : file.tensors)
      write_tensor(writer, tensor, fill);
    writer.finish();
  }
  if (files.size() > 1) write_index(folder.path(), plan.stem, files);
  if (!plan.sums.empty()) write_sums(folder.path(), plan.sums);
  folder.commit(target);
}

}  // namespace

std::vector<ExportFile> plan_files(const ExportPlan& plan) {
  std::vector<ExportFile> files(1);
  std::int64_t bytes = 0;
  for (const TensorSpec& tensor : plan.tensors) {
    if (!files.back().tensors.empty() && bytes + tensor.size_bytes() > plan.max_shard_size_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().tensors.push_back(tensor);
    bytes += tensor.size_bytes();
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    files[i].name = files.size() == 1 ? plan.stem + ".safetensors"
                                      : fmt::format("{}-{:05d}-of-{:05d}.safetensors", plan.stem,
                                                    i + 1, files.size());
    std::ranges::stable_sort(files[i].tensors, std::ranges::greater{},
                             [](const TensorSpec& t) { return core::size_bytes(t.dtype); });
  }
  return files;
}

void export_folder(const fs::path& out, const ExportPlan& plan, const ReadPiece& read_piece,
                   const fs::path& copy_from) {
  Rounding rounding(read_piece, plan.transposed);
  ExportPlan as_written = plan;
  for (TensorSpec& tensor : as_written.tensors)
    if (plan.transposed.contains(tensor.name)) std::ranges::reverse(tensor.shape);
  write_folder(out, as_written, std::ref(rounding), copy_from);
}

void export_bytes(const fs::path& out, const ExportPlan& plan, const ReadBytes& read_bytes,
                  const fs::path& copy_from) {
  std::vector<std::byte> bytes;
  const auto fill = [&](const TensorSpec& tensor, std::int64_t first,
                        std::int64_t count) -> std::span<const std::byte> {
    bytes.resize(static_cast<std::size_t>(count * core::size_bytes(tensor.dtype)));
    read_bytes(tensor.name, first, bytes);
    return bytes;
  };
  write_folder(out, plan, fill, copy_from);
}

}  // namespace finetune::weights
