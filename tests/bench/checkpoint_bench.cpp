// SPDX-License-Identifier: Apache-2.0
// Saving and loading a checkpoint of one rank, beside a plain write() and fsync() of the same
// bytes. Folder: the environment variable FINETUNE_BENCH_FOLDER, else the current one.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/load/find.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/save/save.hpp"
#include "checkpoint/verify/verify.hpp"
#include "core/file.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

fs::path bench_root() {
  const char* folder = std::getenv("FINETUNE_BENCH_FOLDER");
  return fs::path(folder != nullptr ? folder : ".") / "checkpoint_bench.tmp";
}

/// The tensors of one Llama block of width 1024 over and over, as Adam keeps them.
class Model {
 public:
  explicit Model(std::int64_t mebibytes) {
    const std::vector<std::vector<std::int64_t>> shapes = {{1024, 1024}, {1024, 256},  {1024, 256},
                                                           {1024, 1024}, {1024, 2816}, {1024}};
    for (std::int64_t left = mebibytes << 20, i = 0; left > 0; ++i) {
      for (const char* kind : {"param", "exp_avg", "exp_avg_sq"}) {
        const auto& shape = shapes[static_cast<std::size_t>(i) % shapes.size()];
        const core::TensorSlice slice{"layers." + std::to_string(i), shape, core::DType::f32, 0,
                                      core::num_elements(shape)};
        data_.emplace_back(static_cast<std::size_t>(slice.size_bytes()), std::byte(i));
        slices_.push_back({kind, slice, nullptr});
        left -= slice.size_bytes();
        bytes_ += slice.size_bytes();
      }
    }
    for (std::size_t i = 0; i < slices_.size(); ++i)
      slices_[i].data = data_[i].data();
  }

  std::int64_t bytes() const { return bytes_; }
  const std::vector<StoredSlice>& stored() const { return slices_; }
  const std::vector<std::vector<std::byte>>& data() const { return data_; }

  std::vector<WantedSlice> wanted() {
    std::vector<WantedSlice> result;
    for (std::size_t i = 0; i < slices_.size(); ++i)
      result.push_back({slices_[i].kind, slices_[i].slice, data_[i].data()});
    return result;
  }

 private:
  std::vector<std::vector<std::byte>> data_;
  std::vector<StoredSlice> slices_;
  std::int64_t bytes_ = 0;
};

void report_bytes(benchmark::State& state, std::int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

void plain_write_and_fsync(benchmark::State& state) {
  const Model model(state.range(0));
  const fs::path root = bench_root();
  fs::create_directories(root);
  for (auto _ : state) {
    state.PauseTiming();
    fs::remove(root / "plain");
    state.ResumeTiming();
    core::File file(root / "plain", core::File::Mode::create_new);
    std::int64_t position = 0;
    for (const auto& data : model.data()) {
      file.write_at(position, data);
      position += std::ssize(data);
    }
    file.sync();
    file.close();
  }
  fs::remove_all(root);
  report_bytes(state, model.bytes());
}

void checkpoint_save(benchmark::State& state) {
  const Model model(state.range(0));
  const fs::path root = bench_root();
  for (auto _ : state) {
    state.PauseTiming();
    fs::remove_all(root);
    state.ResumeTiming();
    save({}, {}, 0, root, 1, {}, model.stored());
  }
  fs::remove_all(root);
  report_bytes(state, model.bytes());
}

// The next three read from the page cache: they show what checking costs, not the disk.
void plain_read(benchmark::State& state) {
  Model model(state.range(0));
  const fs::path root = bench_root();
  save({}, {}, 0, root, 1, {}, model.stored());
  const auto wanted = model.wanted();
  for (auto _ : state) {
    const core::File file(root / "step-0000000001/node00000.h5", core::File::Mode::read);
    std::int64_t position = 0;
    for (const WantedSlice& want : wanted) {
      const std::int64_t size = want.slice.size_bytes();
      file.read_at(position, {want.data, static_cast<std::size_t>(size)});
      position += size;
    }
  }
  fs::remove_all(root);
  report_bytes(state, model.bytes());
}

void checkpoint_load(benchmark::State& state) {
  Model model(state.range(0));
  const fs::path root = bench_root();
  save({}, {}, 0, root, 1, {}, model.stored());
  const auto wanted = model.wanted();
  for (auto _ : state)
    load({}, *find({}, root, "auto"), wanted);
  fs::remove_all(root);
  report_bytes(state, model.bytes());
}

void checkpoint_verify(benchmark::State& state) {
  const Model model(state.range(0));
  const fs::path root = bench_root();
  save({}, {}, 0, root, 1, {}, model.stored());
  for (auto _ : state) {
    if (!verify(root).problems.empty()) state.SkipWithError("the checkpoint is damaged");
  }
  fs::remove_all(root);
  report_bytes(state, model.bytes());
}

constexpr std::int64_t mebibytes = 512;

BENCHMARK(plain_write_and_fsync)->Arg(mebibytes)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(checkpoint_save)->Arg(mebibytes)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(plain_read)->Arg(mebibytes)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(checkpoint_load)->Arg(mebibytes)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(checkpoint_verify)->Arg(mebibytes)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace finetune::checkpoint
