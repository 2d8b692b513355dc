// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/explained.hpp"

#include <new>
#include <string_view>

#include "comm/detail/cuda_errors.hpp"

namespace finetune::comm {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
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

}  // namespace

Explained explain(const std::exception& error) {
  if (const auto* known = dynamic_cast<const core::Error*>(&error))
    return {known->kind(), known->what()};
  const std::string text = without_frames(error.what());
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      contains(text, "can't allocate memory"))
    return out_of_host_memory();
  // Of memory its figures, without what libtorch advises users of Python to do.
  const std::string figures = text.substr(0, text.find(" If reserved but unallocated"));
  if (const auto fault = fault_of(text)) return explain_cuda(*fault, figures, gpu_place());
  return {core::ErrorKind::bug, text};
}

}  // namespace finetune::comm
