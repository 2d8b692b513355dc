// SPDX-License-Identifier: Apache-2.0
// What every manifest has to be, whoever wrote it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkpoint/format/detail/manifest.hpp"
#include "checkpoint/format/detail/overlap.hpp"
#include "checkpoint/format/detail/tiling.hpp"
#include "checkpoint/format/layout.hpp"
#include "core/tensor_slice.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

// Keeps every sum of two sizes below 2^63.
constexpr std::int64_t largest_size = std::int64_t{1} << 61;

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

  void boxes() const {
    const std::vector<BoxEntry>& all = manifest_.boxes;
    std::size_t first = 0;
    for (std::int64_t tensor = 0; tensor < std::ssize(manifest_.tensors); ++tensor) {
      std::size_t last = first;
      while (last < all.size() && all[last].tensor == tensor)
        ++last;
      cover(manifest_.tensors[static_cast<std::size_t>(tensor)],
            std::span(all).subspan(first, last - first));
      first = last;
    }
    require(first == all.size(), "boxes are not in order of their tensors");
  }

  void extents() const {
    std::int64_t box = 0;   // being covered
    std::int64_t next = 0;  // its first element not yet seen
    for (const Extent& extent : manifest_.extents) {
      require(extent.box >= box && extent.box < std::ssize(manifest_.boxes),
              "slices are not in order of their boxes");
      for (; box < extent.box; ++box, next = 0)
        end_of(box, next);
      const BoxEntry& entry = manifest_.box_of(extent);
      if (extent.offset != next)
        wrong_element(entry, std::min(next, extent.offset), extent.offset > next);
      const TensorEntry& tensor = manifest_.tensor_of(extent);
      if (extent.count < 1 || extent.count > entry.box.num_elements() - next)
        refuse(fmt::format("a slice of {} {} has a wrong count", tensor.kind, tensor.name));
      next += extent.count;
      bytes_of(extent, tensor);
    }
    for (; box < std::ssize(manifest_.boxes); ++box, next = 0)
      end_of(box, next);
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

  /// `boxes` are those of `tensor`: inside it, in order, and every element in exactly one.
  void cover(const TensorEntry& tensor, std::span<const BoxEntry> boxes) const {
    if (boxes.size() > most_boxes_per_tensor)
      refuse(fmt::format("{} {} is cut into more than {} boxes", tensor.kind, tensor.name,
                         most_boxes_per_tensor));
    const core::Box* before = nullptr;
    for (const BoxEntry& entry : boxes) {
      if (!core::is_inside(entry.box, tensor.shape) || entry.box.num_elements() == 0)
        refuse(fmt::format("a box of {} {} is empty, outside its tensor or of another rank",
                           tensor.kind, tensor.name));
      if (before != nullptr && entry.box.begin < before->begin)
        refuse(fmt::format("the boxes of {} {} are not in order", tensor.kind, tensor.name));
      before = &entry.box;
    }
    if (cut_dims(tensor.shape, boxes).size() > most_cut_dims)
      refuse(fmt::format("{} {} is cut along more than {} dims", tensor.kind, tensor.name,
                         most_cut_dims));
    if (const auto wrong = find_wrong_element(tensor.shape, boxes))
      wrong_element(tensor, wrong->element, wrong->is_missing);
  }

  [[noreturn]] void wrong_element(const TensorEntry& tensor, std::int64_t element,
                                  bool is_missing) const {
    refuse(fmt::format("element {} of {} {} is {}", element, tensor.kind, tensor.name,
                       is_missing ? "missing" : "stored twice"));
  }
  [[noreturn]] void wrong_element(const BoxEntry& box, std::int64_t i, bool is_missing) const {
    wrong_element(manifest_.tensors[static_cast<std::size_t>(box.tensor)],
                  manifest_.element_of(box, i), is_missing);
  }

  void end_of(std::int64_t box, std::int64_t next) const {
    const BoxEntry& entry = manifest_.boxes[static_cast<std::size_t>(box)];
    if (next != entry.box.num_elements()) wrong_element(entry, next, true);
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

}  // namespace

void validate(const Manifest& manifest, const std::string& where, core::ErrorKind kind) {
  const Validator validator(manifest, where, kind);
  validator.header();
  validator.files();
  validator.tensors();
  validator.boxes();
  validator.extents();
  validator.overlaps();
}

}  // namespace finetune::checkpoint
