// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/explained.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <string_view>

#include "core/host.hpp"
#include "core/text.hpp"

namespace finetune::comm {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <std::size_t n>
bool contains_any(std::string_view text, const std::array<std::string_view, n>& parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return contains(text, part); });
}

/// libtorch's message without the frames and the advice for developers that follow it.
std::string without_frames(std::string_view text) {
  for (const std::string_view end :
       {"Exception raised from ", "\nCUDA kernel errors might be", "\nCompile with `TORCH_USE",
        "\nFor debugging consider", "\nframe #0", "\nSearch for `cuda"})
    text = text.substr(0, text.find(end));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' '))
    text.remove_suffix(1);
  return std::string(text);
}

Explained out_of_host_memory() {
  return {core::ErrorKind::environment,
          core::to_string({"memory", "there is not enough", "an allocation failed",
                           "Use more ranks, a smaller train.micro_batch or a shorter "
                           "data.max_seq_length; "
                           "`finetune plan` says how much is needed."})};
}

Explained out_of_gpu_memory(const std::string& text) {
  // Its figures, without what it advises users of Python to do.
  const std::string figures = text.substr(0, text.find(" If reserved but unallocated"));
  return {core::ErrorKind::environment,
          core::to_string({"memory of the GPU on " + core::host_name(), "there is not enough",
                           core::one_line(figures),
                           "Use more GPUs, a smaller train.micro_batch, a shorter "
                           "data.max_seq_length or train.activation_checkpointing = \"full\"; "
                           "`finetune plan` says how much is needed, and nvidia-smi who else uses "
                           "this GPU."})};
}

Explained failed_gpu(const std::string& text) {
  return {core::ErrorKind::environment,
          core::to_string({"GPU on " + core::host_name(), "it failed", core::one_line(text),
                           "Look at nvidia-smi and at the node's kernel log (dmesg | grep Xid), "
                           "and leave the node out if they report errors; if it happens on other "
                           "nodes too, please report it."})};
}

Explained foreign_gpu(const std::string& text) {
  return {core::ErrorKind::environment,
          core::to_string({"GPU on " + core::host_name(), "this libtorch has no code for it",
                           core::one_line(text),
                           "Build with a libtorch that was made for this GPU (LibTorch_ROOT), or "
                           "compute on CPUs: train.device = \"cpu\"."})};
}

constexpr std::array<std::string_view, 3> lacks_gpu_memory = {
    "CUDA out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED"};
constexpr std::array<std::string_view, 5> is_of_gpu = {
    "CUDA error: ", "CUDA driver error: ", "CUBLAS_STATUS_", "CUDNN_STATUS_", "cuDNN error: "};

}  // namespace

Explained explain(const std::exception& error) {
  if (const auto* known = dynamic_cast<const core::Error*>(&error))
    return {known->kind(), known->what()};
  const std::string text = without_frames(error.what());
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      contains(text, "can't allocate memory"))
    return out_of_host_memory();
  if (contains_any(text, lacks_gpu_memory)) return out_of_gpu_memory(text);
  if (contains(text, "no kernel image is available")) return foreign_gpu(text);
  if (contains_any(text, is_of_gpu)) return failed_gpu(text);
  return {core::ErrorKind::bug, text};
}

}  // namespace finetune::comm
