#pragma once
// SPDX-License-Identifier: Apache-2.0
// Who computes attention on a GPU, and attention of a whole pass by one launch.

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "model/activations.hpp"

namespace finetune::model {

/// Those of libtorch's kernels that take samples of any lengths one after the other, and windows.
enum class GpuAttention {
  flash,      ///< FlashAttention-2: bf16 and fp16, groups of query heads
  efficient,  ///< CUTLASS: fp32 too, on every GPU; each key head as often as query heads share it
  composed    ///< products and a softmax
};

struct GpuAttentionChoice {
  GpuAttention who = GpuAttention::composed;
  const char* why = "";  ///< a clause; lives for ever
};

/// By a table, so that neither the length of a row nor what libtorch prefers today decides; cuDNN
/// is never chosen, since it plans every new shape anew, for half a second. `capability`: 90 for
/// compute capability 9.0.
/// Source: the checks in FlashAttention-2's and CUTLASS' kernels of libtorch 2.11.
GpuAttentionChoice choose_gpu_attention(int capability, at::ScalarType dtype,
                                        std::int64_t head_size);

/// "attention by FlashAttention-2 (compute capability 9.0, heads of 128: ...)", for the log.
std::string gpu_attention_text(int capability, at::ScalarType dtype, std::int64_t head_size);

/// Whether a pass on this device is one launch per layer.
bool is_one_launch(const at::Tensor& qkv, const AttentionShape& shape, Path path);

/// As attend_pass, for what `is_one_launch`; all tokens are covered, padding attends to itself. The
/// host does not wait.
AttendedPass attend_in_one_launch(const at::Tensor& qkv, const AttentionShape& shape,
                                  const Sequence& sequence, const Sinks& sinks);
at::Tensor attend_in_one_launch_backward(const at::Tensor& d_out, const at::Tensor& qkv,
                                         const AttentionShape& shape, const Sequence& sequence,
                                         const AttendedPass& attended, const Sinks& sinks);

/// Whether FlashAttention-2 takes a run of queries and a run of keys of such a qkv.
bool is_launch_per_run(const at::Tensor& qkv, const AttentionShape& shape, Path path);

/// Views [1, heads, tokens, K] on runs of tokens. Queries see all keys, or (`is_causal`) those up
/// to themselves, with `window` only the last of them (0: all): then the keys end where the queries
/// do.
struct RunSight {
  bool is_causal = false;
  std::int64_t window = 0;
};
Attended attend_run(const QkvViews& views, const RunSight& sight);
QkvViews attend_run_backward(const at::Tensor& d_out, const QkvViews& views,
                             const Attended& attended, const RunSight& sight);

}  // namespace finetune::model
