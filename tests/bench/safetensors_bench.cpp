// SPDX-License-Identifier: Apache-2.0
// Loading weights beside a plain pread of the same bytes. The files lie in the page cache, so this
// measures the program, not the disk.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "core/file.hpp"
#include "weights/model_files.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::weights {
namespace {

constexpr std::int64_t rows = 8192;
constexpr std::int64_t columns = 8192;
constexpr std::int64_t count = rows * columns;

/// A folder with one matrix of 64 M elements of `dtype`, made once and removed at the end.
class Model {
 public:
  explicit Model(core::DType dtype) : dtype_(dtype) {
    std::string pattern = (std::filesystem::temp_directory_path() / "bench_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    SafetensorsWriter writer(file(), {{"weight", dtype, {rows, columns}}});
    const std::vector<std::byte> row(static_cast<std::size_t>(columns * core::size_bytes(dtype)),
                                     std::byte{0x3C});
    for (std::int64_t i = 0; i < rows; ++i)
      writer.write("weight", row);
    writer.finish();
  }
  ~Model() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  std::filesystem::path file() const { return folder_ / "model.safetensors"; }
  const std::filesystem::path& folder() const { return folder_; }
  std::int64_t size_bytes() const { return count * core::size_bytes(dtype_); }

 private:
  core::DType dtype_;
  std::filesystem::path folder_;
};

const Model& model(core::DType dtype) {
  static const Model f32(core::DType::f32);
  static const Model bf16(core::DType::bf16);
  static const Model f16(core::DType::f16);
  return dtype == core::DType::f32 ? f32 : dtype == core::DType::bf16 ? bf16 : f16;
}

void plain_pread(benchmark::State& state, core::DType dtype) {
  const Model& the_model = model(dtype);
  const core::File file(the_model.file(), core::File::Mode::read);
  std::vector<std::byte> target(static_cast<std::size_t>(the_model.size_bytes()));
  const std::int64_t begin = file.size_bytes() - the_model.size_bytes();
  for (auto _ : state)
    file.read_at(begin, target);
  state.SetBytesProcessed(state.iterations() * the_model.size_bytes());
}

/// Bytes a second are those of the file.
void load(benchmark::State& state, core::DType dtype, core::DType wanted) {
  const Model& the_model = model(dtype);
  std::vector<std::byte> target(static_cast<std::size_t>(count * core::size_bytes(wanted)));
  for (auto _ : state) {
    const ModelFiles files = ModelFiles::open(the_model.folder());
    files.read({"weight", {rows, columns}, wanted, 0, count}, target);
  }
  state.SetBytesProcessed(state.iterations() * the_model.size_bytes());
}

using enum core::DType;
BENCHMARK_CAPTURE(plain_pread, f32, f32)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load, f32_as_f32, f32, f32)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load, f32_as_bf16, f32, bf16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plain_pread, bf16, bf16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load, bf16_as_bf16, bf16, bf16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load, bf16_as_f32, bf16, f32)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load, f16_as_f32, f16, f32)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace finetune::weights
