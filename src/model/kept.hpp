#pragma once
// SPDX-License-Identifier: Apache-2.0
// What ops keep from forward to backward, within reach of whoever moves it between memories.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace finetune::model {

/// The whole memory of a tensor that is kept; several may share it.
struct KeptMemory {
  at::Tensor bytes;  ///< uint8 [number of bytes]; undefined while it is elsewhere
};

/// A tensor without its memory.
class KeptTensor {
 public:
  KeptTensor(const at::Tensor& tensor, std::shared_ptr<const KeptMemory> memory);

  /// The tensor, once its memory is there.
  at::Tensor tensor() const;

 private:
  at::Tensor as_it_is_;  ///< what has no memory of its own to move
  std::shared_ptr<const KeptMemory> memory_;
  at::ScalarType dtype_;
  std::int64_t offset_;
  std::vector<std::int64_t> sizes_, strides_;
};

/// What the ops of one block keep, by memory. Tensors of the host and a few bytes stay where
/// they are.
class KeptActivations {
 public:
  /// Nobody else needs to hold `tensor` any more.
  KeptTensor add(const at::Tensor& tensor);

  /// In the order in which they were added. Whoever drops its part leaves the memory to the ops.
  std::vector<std::shared_ptr<KeptMemory>>& memories() { return memories_; }

 private:
  std::vector<std::shared_ptr<KeptMemory>> memories_;
};

/// While it lives, this thread's ops keep in `kept` what else autograd would.
class KeepIn {
 public:
  explicit KeepIn(KeptActivations& kept);
  ~KeepIn();
  KeepIn(const KeepIn&) = delete;
  KeepIn& operator=(const KeepIn&) = delete;

 private:
  KeptActivations* outer_;
};

/// For autograd functions, in place of save_for_backward: keeps tensors for `kept`.
void keep(torch::autograd::AutogradContext* ctx, torch::autograd::variable_list tensors);
/// In place of get_saved_variables, once per context: what was kept in KeptActivations is the
/// caller's alone from here on.
torch::autograd::variable_list kept(torch::autograd::AutogradContext* ctx);

}  // namespace finetune::model
