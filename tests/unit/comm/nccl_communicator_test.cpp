// SPDX-License-Identifier: Apache-2.0
// Runs where every rank has a GPU of its own.
#include "comm/nccl_communicator.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "comm/device.hpp"
#include "core/error.hpp"
#include "support/ranks.hpp"

namespace finetune::comm {
namespace {

/// Device memory with the values of a host vector.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : size_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, size_ * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() { return static_cast<T*>(data_); }
  std::vector<T> values() const {
    std::vector<T> host(size_);
    EXPECT_EQ(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return host;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    // Agreed, because a rank that skips alone would leave the others waiting.
    const auto& world = tests::world();
    const bool too_few = num_gpus() < tests::mpi().topology().ranks_per_node;
    if (world.all_reduce(std::int64_t{too_few}, Reduce::max) != 0)
      GTEST_SKIP() << "needs a GPU for each rank";
    choose_device(world, tests::mpi().node());
  }
};

TEST_F(Nccl, AllGatherKeepsRankOrder) {
  NcclCommunicator nccl(tests::world());
  const auto own = static_cast<std::int64_t>(nccl.rank());
  OnDevice<std::int64_t> shard({own, own + 10});
  OnDevice<std::int64_t> full(std::vector<std::int64_t>(2 * static_cast<std::size_t>(nccl.size())));
  nccl.all_gather(core::DType::i64, shard.data(), full.data(), 2, nullptr);
  nccl.wait(nullptr);
  const auto values = full.values();
  for (int rank = 0; rank < nccl.size(); ++rank) {
    EXPECT_EQ(values[static_cast<std::size_t>(2 * rank)], rank);
    EXPECT_EQ(values[static_cast<std::size_t>(2 * rank + 1)], rank + 10);
  }
}

TEST_F(Nccl, ReduceScatterSumsEachRanksPart) {
  NcclCommunicator nccl(tests::world());
  std::vector<float> values(static_cast<std::size_t>(nccl.size()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i);
  OnDevice<float> full(values);
  OnDevice<float> shard({-1.0f});
  nccl.reduce_scatter(core::DType::f32, full.data(), shard.data(), 1, nullptr);
  nccl.wait(nullptr);
  EXPECT_EQ(shard.values()[0], static_cast<float>(nccl.size() * nccl.rank()));
}

TEST_F(Nccl, AllReduceAddsHalvesAndWholeNumbers) {
  NcclCommunicator nccl(tests::world());
  OnDevice<std::uint16_t> halves({core::float_to_bf16(0.5f)});
  OnDevice<std::int64_t> wholes({(std::int64_t{1} << 40) + nccl.rank()});
  nccl.all_reduce(core::DType::bf16, halves.data(), 1, Reduce::sum, nullptr);
  nccl.all_reduce(core::DType::i64, wholes.data(), 1, Reduce::max, nullptr);
  nccl.wait(nullptr);
  EXPECT_EQ(core::bf16_to_float(halves.values()[0]), 0.5f * static_cast<float>(nccl.size()));
  EXPECT_EQ(wholes.values()[0], (std::int64_t{1} << 40) + nccl.size() - 1);
}

TEST_F(Nccl, RefusesToReduceTypesItCannotAdd) {
  NcclCommunicator nccl(tests::world());
  OnDevice<std::uint8_t> bytes({1});
  EXPECT_THROW(nccl.all_reduce(core::DType::boolean, bytes.data(), 1, Reduce::sum, nullptr),
               core::Error);
  nccl.check();
}

}  // namespace
}  // namespace finetune::comm
