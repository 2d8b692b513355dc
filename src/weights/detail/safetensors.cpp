// SPDX-License-Identifier: Apache-2.0
#include "weights/detail/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "weights/detail/json_events.hpp"
#include "weights/detail/names.hpp"

namespace finetune::weights {
namespace {

constexpr const char* metadata_key = "__metadata__";
constexpr std::size_t most_metadata = 65536;
constexpr const char* again = "Copy or download the file again.";

[[noreturn]] void refuse_file(const std::string& where, const std::string& problem,
                              const std::string& why, const std::string& remedy = again) {
  core::fail(core::ErrorKind::input, {where, problem, why, remedy});
}

[[noreturn]] void refuse_truncated(const std::string& where, const std::string& problem,
                                   const std::string& why) {
  throw TruncatedFile(
      core::ErrorKind::input,
      core::to_string({where, problem, why, "The file is truncated; copy or download it again."}));
}

std::string tensor_text(std::string_view name) {
  return "tensor " + in_quotes(name);
}

/// Builds the list of tensors from
/// {"__metadata__": {string: string}, name: {"dtype":, "shape":, "data_offsets":}}.
/// Offsets are kept as the file has them: from the end of the header.
class HeaderEvents : public JsonEvents {
 public:
  explicit HeaderEvents(const std::string& where) : JsonEvents(where, length_bytes) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (state_ == State::before) return enter(State::file);
    if (state_ != State::file) return unexpected("an object");
    if (name_ == metadata_key) {
      if (std::exchange(has_metadata_, true)) refuse("__metadata__ occurs twice", "it may not");
      return enter(State::metadata);
    }
    if (header_.tensors.size() == most_tensors) {
      refuse(fmt::format("holds more than {} tensors", core::with_commas(most_tensors)),
             "no model does");
    }
    tensor_ = {};
    tensor_.name = name_;
    field_.clear();
    offsets_.clear();
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return enter(State::tensor);
  }

  bool key(string_t& text) override {
    if (state_ == State::file) {
      if (text.size() > longest_tensor_name) {
        refuse(fmt::format("{} has a name of {} bytes", tensor_text(text), text.size()),
               fmt::format("at most {} are read", longest_tensor_name));
      }
      name_ = text;
      return true;
    }
    if (state_ == State::metadata) return metadata_name(text);
    if (text == "dtype") return field(has_dtype_, text);
    if (text == "shape") return field(has_shape_, text);
    if (text == "data_offsets") return field(has_offsets_, text);
    refuse(fmt::format("{} has a field {}", tensor_text(name_), in_quotes(text)),
           "the format knows dtype, shape and data_offsets");
  }

  bool string(string_t& text) override {
    if (state_ == State::metadata) {
      header_.metadata[field_] = std::move(text);
      return true;
    }
    if (state_ != State::tensor || field_ != "dtype") return unexpected("a string");
    const auto dtype = core::parse_dtype(text);
    if (!dtype) {
      refuse_file(where(), fmt::format("{} has dtype {}", tensor_text(name_), in_quotes(text)),
                  "it is not among those this program reads",
                  "Save the model as BF16, F16 or F32.");
    }
    tensor_.dtype = *dtype;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::tensor && field_ == "shape") return enter(State::shape);
    if (state_ == State::tensor && field_ == "data_offsets") return enter(State::offsets);
    return unexpected("an array");
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::shape && state_ != State::offsets) return unexpected("a number");
    auto& numbers = state_ == State::shape ? tensor_.shape : offsets_;
    const std::size_t most = state_ == State::shape ? most_dims : 2;
    if (numbers.size() == most) {
      refuse(fmt::format("{} has more than {} numbers", place(), most), "it may not");
    }
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse(fmt::format("{} is {}", place(), value), "that is beyond any file");
    }
    numbers.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool end_array() override {
    if (state_ == State::offsets && offsets_.size() != 2) {
      refuse(place() + " has fewer than 2 numbers", "a tensor has a first byte and an end");
    }
    return enter(State::tensor);
  }

  bool end_object() override {
    if (state_ == State::file) return enter(State::after);
    if (state_ == State::tensor) finish_tensor();
    return enter(State::file);
  }

 protected:
  std::string place() const override {
    switch (state_) {
      case State::before:
      case State::after:
        return "the header";
      case State::file:
        return name_ == metadata_key ? name_ : tensor_text(name_);
      case State::metadata:
        return fmt::format("__metadata__ {}", in_quotes(field_));
      default:
        return fmt::format("{} {}", tensor_text(name_), field_);
    }
  }

 private:
  enum class State { before, file, metadata, tensor, shape, offsets, after };

  bool enter(State state) {
    state_ = state;
    return true;
  }

  bool field(bool& seen, const std::string& text) {
    field_ = text;
    if (std::exchange(seen, true)) refuse(place() + " occurs twice", "only one can be meant");
    return true;
  }

  bool metadata_name(const std::string& text) {
    field_ = text;
    if (header_.metadata.size() == most_metadata) {
      refuse(fmt::format("__metadata__ has more than {} entries", most_metadata), "no model does");
    }
    if (!header_.metadata.emplace(text, "").second) {
      refuse(place() + " occurs twice", "only one can be meant");
    }
    return true;
  }

  void finish_tensor() {
    if (!has_dtype_ || !has_shape_ || !has_offsets_) {
      refuse(fmt::format("{} is incomplete", tensor_text(name_)),
             "it needs dtype, shape and data_offsets");
    }
    if (offsets_[1] < offsets_[0]) {
      refuse(fmt::format("{} ends at byte {} of the data and begins at {}", tensor_text(name_),
                         offsets_[1], offsets_[0]),
             "its end is before its beginning");
    }
    tensor_.offset_bytes = offsets_[0];
    tensor_.size_bytes = offsets_[1] - offsets_[0];
    header_.tensors.push_back(std::move(tensor_));
  }

  State state_ = State::before;
  SafetensorsHeader header_;
  bool has_metadata_ = false;
  std::string name_;   ///< key of the current entry of the file
  std::string field_;  ///< key inside it
  SafetensorsTensor tensor_;
  std::vector<std::int64_t> offsets_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

/// Bytes of a tensor, nothing if the product is beyond 63 bits.
std::optional<std::int64_t> num_bytes(const SafetensorsTensor& tensor) {
  std::int64_t bytes = core::size_bytes(tensor.dtype);
  for (const std::int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return bytes;
}

void check_size(const SafetensorsTensor& tensor, const std::string& where) {
  const auto bytes = num_bytes(tensor);
  if (!bytes) {
    refuse_file(where,
                fmt::format("{} has shape {}", tensor_text(tensor.name), shape_text(tensor.shape)),
                "that is beyond any file");
  }
  if (*bytes != tensor.size_bytes) {
    refuse_file(where,
                fmt::format("{} has {} bytes", tensor_text(tensor.name),
                            core::with_commas(tensor.size_bytes)),
                fmt::format("shape {} of {} needs {}", shape_text(tensor.shape),
                            core::name(tensor.dtype), core::with_commas(*bytes)));
  }
}

void check_names(const std::vector<SafetensorsTensor>& tensors, const std::string& where) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto name = [&](std::size_t i) -> const std::string& { return tensors[i].name; };
  std::ranges::sort(order, {}, name);
  const auto twice = std::ranges::adjacent_find(order, {}, name);
  if (twice != order.end()) {
    refuse_file(where, fmt::format("{} occurs twice", tensor_text(name(*twice))),
                "only one of the two could be meant");
  }
}

/// The sorted tensors must follow each other without gap or overlap from the first byte of the data
/// to the last of the file: bytes that no tensor owns could be a second file in disguise.
void check_layout(const std::vector<SafetensorsTensor>& tensors, std::int64_t data_bytes,
                  std::int64_t data_begin, const std::string& where) {
  std::int64_t position = 0;
  const SafetensorsTensor* before = nullptr;
  for (const SafetensorsTensor& tensor : tensors) {
    check_size(tensor, where);
    if (tensor.offset_bytes < position) {
      refuse_file(
          where, fmt::format("{} overlaps {}", tensor_text(tensor.name), tensor_text(before->name)),
          fmt::format("both claim byte {} of the data", tensor.offset_bytes));
    }
    if (tensor.offset_bytes > position) {
      refuse_file(
          where,
          fmt::format("{} bytes before {} belong to no tensor",
                      core::with_commas(tensor.offset_bytes - position), tensor_text(tensor.name)),
          "something could be hidden there");
    }
    position += tensor.size_bytes;
    before = &tensor;
  }
  // Wrapping cannot happen: every end was read as a number of at most 63 bits.
  if (position > data_bytes) {
    refuse_truncated(
        where, fmt::format("ends at byte {}", data_begin + data_bytes),
        fmt::format("the header promises {}",
                    static_cast<std::uint64_t>(data_begin) + static_cast<std::uint64_t>(position)));
  }
  if (position < data_bytes) {
    refuse_file(where,
                fmt::format("{} bytes at the end belong to no tensor",
                            core::with_commas(data_bytes - position)),
                "something could be hidden there");
  }
}

}  // namespace

std::int64_t header_length(std::span<const std::byte, 8> prefix, std::int64_t file_size_bytes,
                           const std::string& where) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < prefix.size(); ++i)
    length |= static_cast<std::uint64_t>(prefix[i]) << (8 * i);
  constexpr std::string_view pointer = "version ";
  if (std::ranges::equal(std::as_bytes(std::span(pointer)), prefix)) {
    refuse_file(where, "is a Git LFS pointer", "the weights themselves were not downloaded",
                "Run `git lfs pull` in the model's repository.");
  }
  if (length > static_cast<std::uint64_t>(largest_header_bytes)) {
    refuse_file(where, fmt::format("its header would have {} bytes", length),
                fmt::format("at most {} are allowed", core::with_commas(largest_header_bytes)),
                "Is it a safetensors file? Otherwise copy or download it again.");
  }
  const auto end = length_bytes + static_cast<std::int64_t>(length);
  if (end > file_size_bytes) {
    refuse_truncated(where, fmt::format("ends at byte {}", file_size_bytes),
                     fmt::format("its header alone ends at {}", end));
  }
  return static_cast<std::int64_t>(length);
}

SafetensorsHeader parse_safetensors(std::string_view header, std::int64_t file_size_bytes,
                                    const std::string& where) {
  if (!header.starts_with('{')) {
    refuse_file(where, "the header does not begin with {", "it has to be a JSON object",
                "Is it a safetensors file? Otherwise copy or download it again.");
  }
  HeaderEvents events(where);
  events.parse(header);
  SafetensorsHeader result = events.take();
  check_names(result.tensors, where);
  // Tensors without elements come before the one that begins at the same byte.
  std::ranges::sort(result.tensors, {}, [](const SafetensorsTensor& tensor) {
    return std::pair(tensor.offset_bytes, tensor.size_bytes);
  });
  const std::int64_t data_begin = length_bytes + std::ssize(header);
  check_layout(result.tensors, file_size_bytes - data_begin, data_begin, where);
  for (SafetensorsTensor& tensor : result.tensors)
    tensor.offset_bytes += data_begin;
  return result;
}

std::string read_header_text(const core::File& file) {
  const std::string where = file.path().string();
  const std::int64_t size = file.size_bytes();
  if (size < length_bytes) {
    refuse_truncated(where, fmt::format("ends at byte {}", size),
                     fmt::format("a safetensors file has at least {}", length_bytes + 2));
  }
  std::array<std::byte, 8> prefix;
  file.read_at(0, prefix);
  std::string text(static_cast<std::size_t>(header_length(prefix, size, where)), '\0');
  file.read_at(length_bytes, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace finetune::weights
