// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "checkpoint/layout.hpp"
#include "checkpoint/manifest_fields.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "core/tensor_slice.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

// Keeps every sum of two sizes below 2^63.
constexpr std::int64_t largest_size = std::int64_t{1} << 61;
constexpr std::size_t largest_rank = 8;

/// Checks one manifest; every function throws at its first problem.
class Validator {
 public:
  Validator(const Manifest& manifest, const std::string& where, core::ErrorKind kind)
      : manifest_(manifest), where_(where), kind_(kind) {}

  void header() const {
    require(manifest_.step >= 0 && manifest_.step <= largest_step, "step is out of range");
    require(manifest_.world_size >= 1, "world_size is not positive");
    const std::int64_t block = manifest_.block_bytes;
    require(block >= smallest_block_bytes && block <= largest_block_bytes && block % 8 == 0,
            "block_bytes is out of range");
    require(manifest_.state_bytes >= 0, "state_bytes is negative");
  }

  void files() const {
    std::string_view before;
    std::int64_t total = 0;
    for (const FileEntry& file : manifest_.files) {
      require(is_file_name(file.name), "a file name is not of the form node00000.h5");
      require(before < file.name, "files are not in order or one occurs twice");
      require(file.size_bytes >= 0 && file.size_bytes <= largest_size, "a file's size is absurd");
      total += file.size_bytes;
      require(total <= largest_size, "the files' sizes are absurd");
      before = file.name;
    }
  }

  void tensors() const {
    std::pair<std::string_view, std::string_view> before;
    for (const TensorEntry& tensor : manifest_.tensors) {
      if (!is_kind(tensor.kind) || !is_tensor_name(tensor.name)) {
        refuse(fmt::format("tensor name \"{}\" \"{}\" is not allowed", core::one_line(tensor.kind),
                           core::one_line(tensor.name)));
      }
      const std::pair<std::string_view, std::string_view> key{tensor.kind, tensor.name};
      require(before < key, "tensors are not in order or one occurs twice");
      before = key;
      shape(tensor);
    }
  }

  void extents() const {
    std::int64_t tensor = 0;  // being covered
    std::int64_t next = 0;    // its first element not yet seen
    for (const Extent& extent : manifest_.extents) {
      require(extent.tensor >= tensor && extent.tensor < std::ssize(manifest_.tensors),
              "slices are not in order of their tensors");
      for (; tensor < extent.tensor; ++tensor, next = 0)
        end_of(tensor, next);
      const TensorEntry& entry = manifest_.tensors[static_cast<std::size_t>(tensor)];
      if (extent.offset != next) {
        refuse(fmt::format("element {} of {} {} is {}", std::min(next, extent.offset), entry.kind,
                           entry.name, extent.offset > next ? "missing" : "stored twice"));
      }
      if (extent.count < 1 || extent.count > entry.num_elements() - next)
        refuse(fmt::format("a slice of {} {} has a wrong count", entry.kind, entry.name));
      next += extent.count;
      bytes_of(extent, entry);
    }
    for (; tensor < std::ssize(manifest_.tensors); ++tensor, next = 0)
      end_of(tensor, next);
  }

  /// No byte of a file belongs to two slices.
  void overlaps() const {
    std::vector<const Extent*> by_position;
    by_position.reserve(manifest_.extents.size());
    for (const Extent& extent : manifest_.extents)
      by_position.push_back(&extent);
    std::ranges::sort(by_position, {},
                      [](const Extent* e) { return std::pair(e->file, e->position); });
    for (std::size_t i = 1; i < by_position.size(); ++i) {
      const Extent& a = *by_position[i - 1];
      const Extent& b = *by_position[i];
      require(a.file != b.file || a.position + manifest_.extent_bytes(a) <= b.position,
              "two slices share bytes of a file");
    }
  }

 private:
  [[noreturn]] void refuse(std::string problem) const {
    core::fail(kind_, {where_, std::move(problem), "no checkpoint has such a manifest",
                       "Remove this checkpoint folder or restore it from a copy."});
  }

  // For constant sentences; those with names are made only when they are needed.
  void require(bool holds, const char* problem) const {
    if (!holds) refuse(problem);
  }

  void shape(const TensorEntry& tensor) const {
    require(tensor.shape.size() <= largest_rank, "a tensor has more than 8 dims");
    std::int64_t bytes = core::size_bytes(tensor.dtype);
    for (const std::int64_t dim : tensor.shape) {
      // Zero dims count as one here: [2^60, 2^60, 0] is as absurd as without the zero.
      const std::int64_t factor = std::max<std::int64_t>(dim, 1);
      if (dim < 0 || __builtin_mul_overflow(bytes, factor, &bytes) || bytes > largest_size)
        refuse(fmt::format("the shape of {} {} is absurd", tensor.kind, tensor.name));
    }
  }

  void end_of(std::int64_t tensor, std::int64_t next) const {
    const TensorEntry& entry = manifest_.tensors[static_cast<std::size_t>(tensor)];
    if (next != entry.num_elements())
      refuse(fmt::format("element {} of {} {} is missing", next, entry.kind, entry.name));
  }

  void bytes_of(const Extent& extent, const TensorEntry& tensor) const {
    require(extent.file >= 0 && extent.file < std::ssize(manifest_.files),
            "a slice names no file of the list");
    const std::int64_t size = manifest_.files[static_cast<std::size_t>(extent.file)].size_bytes;
    const std::int64_t bytes = extent.count * core::size_bytes(tensor.dtype);
    if (extent.position < 0 || extent.position > size || bytes > size - extent.position)
      refuse(fmt::format("a slice of {} {} ends after its file", tensor.kind, tensor.name));
    const std::int64_t blocks = (bytes - 1) / manifest_.block_bytes + 1;
    if (std::ssize(extent.crc32c) != blocks)
      refuse(fmt::format("a slice of {} {} lacks checksums", tensor.kind, tensor.name));
  }

  const Manifest& manifest_;
  const std::string& where_;
  core::ErrorKind kind_;
};

std::string json_text(std::string_view text) {
  return core::Json(text).dump();
}

/// Appends `"name":[` and one row a line.
template <typename Rows, typename Write>
void append_rows(std::string& text, std::string_view name, const Rows& rows, Write&& write_row) {
  text += fmt::format(",\n\"{}\":[", name);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    text += i == 0 ? "\n" : ",\n";
    write_row(rows[i]);
  }
  text += "]";
}

}  // namespace

std::int64_t TensorEntry::num_elements() const {
  return core::num_elements(shape);
}

std::int64_t Manifest::find(std::string_view kind, std::string_view name) const {
  const auto key = [](const TensorEntry& t) {
    return std::pair<std::string_view, std::string_view>(t.kind, t.name);
  };
  const std::pair wanted(kind, name);
  const auto at = std::ranges::lower_bound(tensors, wanted, {}, key);
  return at == tensors.end() || key(*at) != wanted ? -1 : at - tensors.begin();
}

std::span<const Extent> Manifest::extents_of(std::int64_t tensor) const {
  // Not equal_range: clang 14 cannot compile the subrange of GCC 12's library.
  const auto begin = std::ranges::lower_bound(extents, tensor, {}, &Extent::tensor);
  return {begin, std::ranges::upper_bound(begin, extents.end(), tensor, {}, &Extent::tensor)};
}

std::int64_t Manifest::extent_bytes(const Extent& extent) const {
  return extent.count * core::size_bytes(tensors[static_cast<std::size_t>(extent.tensor)].dtype);
}

std::int64_t Manifest::payload_bytes() const {
  std::int64_t total = 0;
  for (const Extent& extent : extents)
    total += extent_bytes(extent);
  return total;
}

void validate(const Manifest& manifest, const std::string& where, core::ErrorKind kind) {
  const Validator validator(manifest, where, kind);
  validator.header();
  validator.files();
  validator.tensors();
  validator.extents();
  validator.overlaps();
}

std::string to_text(const Manifest& manifest) {
  std::string text = fmt::format(
      "{{\"{}\":{},\n\"{}\":{},\n\"{}\":{},\n\"{}\":{},\n\"{}\":{},\n\"{}\":{},\n\"{}\":{},\n"
      "\"{}\":{}",
      field::format, json_text(field::format_value), field::version, field::version_value,
      field::step, manifest.step, field::world_size, manifest.world_size, field::block_bytes,
      manifest.block_bytes, field::created_by, json_text(core::printable(manifest.created_by)),
      field::state_bytes, manifest.state_bytes, field::state_fingerprint,
      json_text(manifest.state_fingerprint));
  append_rows(text, field::files, manifest.files, [&](const FileEntry& f) {
    fmt::format_to(std::back_inserter(text), "[{},{},{}]", json_text(f.name), f.size_bytes,
                   f.skeleton_crc32c);
  });
  append_rows(text, field::tensors, manifest.tensors, [&](const TensorEntry& t) {
    fmt::format_to(std::back_inserter(text), "[{},{},{},[{}]]", json_text(t.kind),
                   json_text(t.name), json_text(core::name(t.dtype)), fmt::join(t.shape, ","));
  });
  append_rows(text, field::slices, manifest.extents, [&](const Extent& e) {
    fmt::format_to(std::back_inserter(text), "[{},{},{},{},{},[{}]]", e.tensor, e.file, e.offset,
                   e.count, e.position, fmt::join(e.crc32c, ","));
  });
  text += ",\n";
  const std::string fingerprint = core::fingerprint(text);
  text += fmt::format("\"{}\":\"{}\"}}\n", field::fingerprint, fingerprint);
  return text;
}

}  // namespace finetune::checkpoint
