// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.hpp"

#include "core/error.hpp"
#include "kernels/arithmetic.hpp"
#include "kernels/launch.hpp"

namespace finetune::kernels {
namespace {

struct Step {
  float *weight, *exp_avg, *exp_avg_sq;
  const float* gradient;
  bf16* weight_bf16;  // or null
  float gradient_scale, keep, lerp1, beta2, rest2, root_correction2, epsilon, step_size;

  KOKKOS_FORCEINLINE_FUNCTION float update(std::int64_t i) const {
    const float g = gradient[i] * gradient_scale;
    const float m = exp_avg[i] + lerp1 * (g - exp_avg[i]);
    const float v = exp_avg_sq[i] * beta2 + rest2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const float denominator = std::sqrt(v) / root_correction2 + epsilon;
    const float updated = weight[i] * keep - step_size * m / denominator;
    weight[i] = updated;
    return updated;
  }

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t first, std::int64_t last) const {
    if (weight_bf16 == nullptr) {
#pragma GCC ivdep
      for (std::int64_t i = first; i < last; ++i)
        update(i);
      return;
    }
#pragma GCC ivdep
    for (std::int64_t i = first; i < last; ++i)
      weight_bf16[i] = round_to<bf16>(update(i));
  }
};

}  // namespace

void adamw(const AdamWStep& args) {
  const std::size_t count = args.weight.size();
  core::check(args.exp_avg.size() == count && args.exp_avg_sq.size() == count &&
                  args.gradient.size() == count,
              "adamw: weight, moments and gradient have the same size");
  core::check(args.weight_bf16.empty() || args.weight_bf16.size() == count,
              "adamw: the bf16 copy has the size of the weight");
  core::check(args.step >= 1, "adamw: steps count from 1");
  const double correction1 = 1.0 - std::pow(args.beta1, static_cast<double>(args.step));
  const double correction2 = 1.0 - std::pow(args.beta2, static_cast<double>(args.step));
  const auto single = [](double value) { return static_cast<float>(value); };
  launch(0, static_cast<std::int64_t>(count), grain_elements,
         Step{args.weight.data(), args.exp_avg.data(), args.exp_avg_sq.data(), args.gradient.data(),
              args.weight_bf16.empty() ? nullptr : args.weight_bf16.data(), args.gradient_scale,
              single(1.0 - args.lr * args.weight_decay), single(1.0 - args.beta1),
              single(args.beta2), single(1.0 - args.beta2), single(std::sqrt(correction2)),
              single(args.epsilon), single(args.lr / correction1)});
}

}  // namespace finetune::kernels
