// SPDX-License-Identifier: Apache-2.0
#include "kernels/schedule_free.hpp"

#include <type_traits>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/update_loop.hpp"

namespace finetune::kernels {
namespace {

struct ScheduleFreeNumbers {
  float gradient_scale, beta2, rest2, root_correction2, epsilon, weight_decay, average, y_step,
      z_step;
};

template <class Weight, class Moment, bool is_stochastic>
struct ScheduleFreeUpdate {
  Weight* weight;
  Moment *z, *exp_avg_sq;
  const float* gradient;
  ScheduleFreeNumbers by;

  KOKKOS_FORCEINLINE_FUNCTION float operator()(std::int64_t i, std::uint32_t random) const {
    const float g = gradient[i] * by.gradient_scale;
    const float y = to_float(weight[i]), at_z = to_float(z[i]);
    const float v = to_float(exp_avg_sq[i]) * by.beta2 + by.rest2 * g * g;
    const float denominator = std::sqrt(v) / by.root_correction2 + by.epsilon;
    const float direction = g / denominator + by.weight_decay * y;
    exp_avg_sq[i] = stored_as<Moment, is_stochastic>(v, bits_for_exp_avg_sq(random));
    z[i] = stored_as<Moment, is_stochastic>(at_z - by.z_step * direction, bits_for_exp_avg(random));
    const float updated = y + by.average * (at_z - y) - by.y_step * direction;
    weight[i] = stored_as<Weight, is_stochastic>(updated, bits_for_weight(random));
    return is_stochastic ? to_float(weight[i]) : updated;
  }
};

template <class Weight, class Moment>
ScheduleFreeNumbers numbers(const ScheduleFreeStep<Weight, Moment>& args) {
  const double correction2 = 1.0 - std::pow(args.beta2, static_cast<double>(args.step));
  const auto single = [](double value) { return static_cast<float>(value); };
  return {.gradient_scale = args.gradient_scale,
          .beta2 = single(args.beta2),
          .rest2 = single(1.0 - args.beta2),
          .root_correction2 = single(std::sqrt(correction2)),
          .epsilon = single(args.epsilon),
          .weight_decay = single(args.weight_decay),
          .average = single(args.average),
          .y_step = single(args.lr * (1.0 - args.beta1 * (1.0 - args.average))),
          .z_step = single(args.lr)};
}

template <bool is_stochastic, class Weight, class Moment, class Copy>
void launch_schedule_free(const ScheduleFreeStep<Weight, Moment>& args, std::span<Copy> copy,
                          const Place& place) {
  launch_update<is_stochastic>(args,
                               ScheduleFreeUpdate<Weight, Moment, is_stochastic>{
                                   args.weight.data(), args.z.data(), args.exp_avg_sq.data(),
                                   args.gradient.data(), numbers(args)},
                               copy, place);
}

template <class Weight, class Moment, class Copy>
void step(const ScheduleFreeStep<Weight, Moment>& args, std::span<Copy> copy, const Place& place) {
  constexpr bool is_narrow = std::is_same_v<Weight, bf16> || std::is_same_v<Moment, bf16>;
  if constexpr (is_narrow) {
    if (args.rounding) return launch_schedule_free<true>(args, copy, place);
  }
  launch_schedule_free<false>(args, copy, place);
}

}  // namespace

template <class Weight, class Moment>
void schedule_free(const ScheduleFreeStep<Weight, Moment>& args, const Place& place) {
  const std::size_t count = args.weight.size();
  core::check(
      args.z.size() == count && args.exp_avg_sq.size() == count && args.gradient.size() == count,
      "schedule_free: weight, states and gradient have the same size");
  core::check(args.step >= 1, "schedule_free: steps count from 1");
  with_copy(args, [&](auto copy) { step(args, copy, place); });
}

template void schedule_free(const ScheduleFreeStep<float, float>&, const Place&);
template void schedule_free(const ScheduleFreeStep<float, bf16>&, const Place&);
template void schedule_free(const ScheduleFreeStep<bf16, float>&, const Place&);
template void schedule_free(const ScheduleFreeStep<bf16, bf16>&, const Place&);

}  // namespace finetune::kernels
