#pragma once
// SPDX-License-Identifier: Apache-2.0
// Memory that is told to a group before its collectives use it.

#include <ATen/ATen.h>

#include <memory>
#include <utility>
#include <vector>

#include "comm/group.hpp"

namespace finetune::shard {

/// Keeps tensors, and lets a group know their memory for as long.
class Remembered {
 public:
  /// Null: tells nobody.
  explicit Remembered(std::shared_ptr<comm::Group> group) : group_(std::move(group)) {}
  Remembered(Remembered&&) = default;
  Remembered(const Remembered&) = delete;
  Remembered& operator=(const Remembered&) = delete;
  ~Remembered() {
    for (const at::Tensor& tensor : tensors_)
      group_->forget(tensor.data_ptr());
  }

  void add(const at::Tensor& tensor) {
    if (group_ == nullptr || tensor.numel() == 0) return;
    group_->remember(tensor.data_ptr(), static_cast<std::int64_t>(tensor.nbytes()));
    tensors_.push_back(tensor);
  }

 private:
  std::shared_ptr<comm::Group> group_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace finetune::shard
