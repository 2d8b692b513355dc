// SPDX-License-Identifier: Apache-2.0
#include "train/input/arithmetic.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "core/log.hpp"
#include "kernels/processor.hpp"
#include "model/products.hpp"
#include "plan/layout/settings.hpp"

namespace finetune::train {
namespace {

std::string short_name_of(core::DType dtype) {
  return dtype == core::DType::f32 ? "fp32" : dtype == core::DType::f16 ? "fp16" : "bf16";
}

bool multiplies(core::DType dtype) {
  return model::path_for(dtype) != model::Path::widened;
}

/// `is_needed`: a processor has no instructions for the products.
bool is_widened(plan::CpuProducts asked, bool is_needed) {
  switch (asked) {
    case plan::CpuProducts::automatic:
      return is_needed;
    case plan::CpuProducts::native:
      return false;
    case plan::CpuProducts::widened:
      return true;
  }
  return false;
}

}  // namespace

bool choose_widening(const comm::Communicator& world, plan::CpuProducts asked,
                     const plan::Numbers& numbers, bool is_needed) {
  if (numbers.compute == core::DType::f32) return false;
  const std::string dtype = short_name_of(numbers.compute);
  const std::int64_t in_need = world.all_reduce(std::int64_t{is_needed}, comm::Reduce::sum);
  const bool widens = is_widened(asked, in_need > 0);
  std::string text = widens ? fmt::format("products of {} are computed in fp32 and rounded", dtype)
                            : fmt::format("products of {} by libtorch", dtype);
  if (in_need == world.size()) {
    text += fmt::format(" ({} has no instructions for {})", kernels::instruction_set(), dtype);
  } else if (in_need > 0) {
    text += fmt::format(" ({} of {} ranks have no instructions for {}; all do the same)", in_need,
                        world.size(), dtype);
  } else {
    text += fmt::format(" ({})", kernels::instruction_set());
  }
  if (!widens && in_need > 0) {
    log::warn(
        fmt::format("precision.cpu_products = \"native\": {} of {} ranks have no instructions for "
                    "{}, where its products take up to a hundred times as long as in fp32. "
                    "\"auto\" avoids that.",
                    in_need, world.size(), dtype));
  }
  if (asked != plan::CpuProducts::automatic)
    text += fmt::format(", as precision.cpu_products = \"{}\" says", plan::name_of(asked));
  log::info(text);
  return widens;
}

Arithmetic own_arithmetic(plan::CpuProducts asked, const plan::Numbers& numbers) {
  const bool is_narrow = numbers.compute != core::DType::f32;
  return {.widens = is_narrow && is_widened(asked, !multiplies(numbers.compute)),
          .threads = at::get_num_threads()};
}

Arithmetic agree_on_arithmetic(const comm::Communicator& world, plan::CpuProducts asked,
                               const plan::Numbers& numbers, bool on_gpu) {
  Arithmetic made;
  made.threads = world.all_reduce(std::int64_t{at::get_num_threads()}, comm::Reduce::max);
  made.widens = !on_gpu && choose_widening(world, asked, numbers, !multiplies(numbers.compute));
  return made;
}

std::string describe_arithmetic(const plan::Numbers& numbers, bool on_gpu) {
  const std::string narrow =
      !numbers.fp8 ? "" : fmt::format("8-bit operands ({}), ", plan::describe(*numbers.fp8));
  if (on_gpu) return narrow + "GPU";
  const std::string dtype = narrow + short_name_of(numbers.compute);
  return numbers.widens ? fmt::format("{} in fp32, {}", dtype, kernels::instruction_set())
                        : fmt::format("{} by libtorch, {}", dtype, kernels::instruction_set());
}

}  // namespace finetune::train
