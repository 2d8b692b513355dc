#pragma once
// SPDX-License-Identifier: Apache-2.0
// A rank with a fake GPU, its stream of collectives and device memory.

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/device.hpp"
#include "comm/group_factory.hpp"
#include "fake_cuda/fake.hpp"
#include "support/ranks.hpp"
#include "unit/comm/group_memory.hpp"

namespace finetune::tests {

/// [count] on the device.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values)
      : bytes_(make_device_bytes(values.size() * sizeof(T))), count_(values.size()) {
    std::copy(values.begin(), values.end(), get());
  }
  T* get() const { return static_cast<T*>(static_cast<void*>(bytes_.get())); }
  /// Writes them when the stream that computes comes to it.
  void write_later(const std::vector<T>& values) const {
    fake::put(compute_stream(), [to = get(), values] { std::ranges::copy(values, to); });
  }
  /// As the stream that computes finds them.
  std::vector<T> read() const {
    std::vector<T> values(count_);
    copy_to_host(std::as_writable_bytes(std::span(values)), bytes_);
    return values;
  }

 private:
  DeviceBytes bytes_;
  std::size_t count_;
};

class OnFakeGpus : public testing::Test {
 protected:
  OnFakeGpus() { comm::choose_device(world(), mpi().node()); }

  static fake::Settings with(fake::Settings settings) {
    fake::set(settings);
    return settings;
  }
  static std::shared_ptr<comm::DeviceStream> make_stream() {
    return std::make_shared<comm::DeviceStream>(compute_stream);
  }
  static std::size_t ranks() { return static_cast<std::size_t>(world().size()); }
  /// `f` of each rank.
  template <typename F>
  static auto of_all(const F& f) {
    std::vector<decltype(f(0))> all;
    for (int rank = 0; rank < world().size(); ++rank)
      all.push_back(f(rank));
    return all;
  }
};

}  // namespace finetune::tests
