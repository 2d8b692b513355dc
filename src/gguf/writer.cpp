// SPDX-License-Identifier: Apache-2.0
#include "gguf/writer.hpp"

#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <system_error>

#include "core/error.hpp"
#include "core/file.hpp"
#include "gguf/q8_0.hpp"

namespace finetune::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's numbers are");

constexpr std::int64_t alignment = 32;
constexpr std::uint32_t magic = 0x46554747, version = 3;
enum ValueType : std::uint32_t { u32 = 4, i32 = 5, f32 = 6, boolean = 7, text = 8, list = 9 };

class Header {
 public:
  template <typename T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void string(const std::string& value) {
    number(std::uint64_t{value.size()});
    bytes_ += value;
  }
  void value(std::uint32_t value) { typed(u32, value); }
  void value(float value) { typed(f32, value); }
  void value(bool value) { typed(boolean, static_cast<std::uint8_t>(value)); }
  void value(const std::string& value) {
    number(std::uint32_t{text});
    string(value);
  }
  void value(const std::vector<std::string>& values) {
    begin_list(text, values.size());
    for (const std::string& each : values)
      string(each);
  }
  void value(const std::vector<std::int32_t>& values) { numbers(i32, values); }
  void value(const std::vector<float>& values) { numbers(f32, values); }

  std::string& bytes() { return bytes_; }

 private:
  template <typename T>
  void typed(ValueType type, T value) {
    number(std::uint32_t{type});
    number(value);
  }
  void begin_list(ValueType of, std::size_t count) {
    number(std::uint32_t{list});
    number(std::uint32_t{of});
    number(std::uint64_t{count});
  }
  template <typename T>
  void numbers(ValueType of, const std::vector<T>& values) {
    begin_list(of, values.size());
    for (const T each : values)
      number(each);
  }

  std::string bytes_;
};

std::int64_t padded(std::int64_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

struct Writer::Output {
  core::File file;
};

std::int64_t Tensor::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies{});
}

std::int64_t Tensor::bytes() const {
  if (type == TensorType::q8_0) return count() / q8_0_together * q8_0_bytes;
  return count() * (type == TensorType::f32 ? 4 : 2);
}

void require_new(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored))
    core::fail(core::ErrorKind::create, {file.string(), "is there already",
                                         "nothing is overwritten", "Remove it, or name another."});
}

Writer::Writer(const std::filesystem::path& file,
               const std::vector<std::pair<std::string, Value>>& values,
               const std::vector<Tensor>& tensors)
    : file_(file), partial_(file.string() + ".partial"), tensors_(tensors) {
  require_new(file_);
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
  output_ = std::make_unique<Output>(
      Output{core::File(partial_, core::File::Mode::create_new, core::ErrorKind::create)});
  Header header;
  header.number(magic);
  header.number(version);
  header.number(std::uint64_t{tensors.size()});
  header.number(std::uint64_t{values.size()});
  for (const auto& [key, value] : values) {
    header.string(key);
    std::visit([&](const auto& each) { header.value(each); }, value);
  }
  std::int64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    header.string(tensor.name);
    header.number(static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      header.number(static_cast<std::uint64_t>(*size));
    header.number(static_cast<std::uint32_t>(tensor.type));
    header.number(static_cast<std::uint64_t>(offset));
    offset += padded(tensor.bytes());
  }
  write(std::as_bytes(std::span(header.bytes())));
  pad();
}

Writer::~Writer() {
  std::error_code ignored;
  if (!is_finished_) std::filesystem::remove(partial_, ignored);
}

void Writer::add(std::span<const std::byte> bytes) {
  added_ += std::ssize(bytes);
  core::check(next_ < tensors_.size() && added_ <= tensors_[next_].bytes(),
              "a tensor has the bytes that were said");
  write(bytes);
  if (added_ < tensors_[next_].bytes()) return;
  ++next_;
  added_ = 0;
  pad();
}

void Writer::finish() {
  core::check(next_ == tensors_.size(), "all tensors that were named are written");
  output_->file.sync();
  std::error_code problem;
  std::filesystem::rename(partial_, file_, problem);
  if (problem)
    core::fail(core::ErrorKind::io, {file_.string(), "cannot get its name", problem.message(),
                                     "What was written is removed."});
  is_finished_ = true;
}

void Writer::write(std::span<const std::byte> bytes) {
  output_->file.write_at(written_, bytes);
  written_ += std::ssize(bytes);
}

void Writer::pad() {
  const std::vector<std::byte> zeros(static_cast<std::size_t>(padded(written_) - written_));
  if (!zeros.empty()) write(zeros);
}

}  // namespace finetune::gguf
