// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.hpp"

#include <type_traits>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/update_loop.hpp"

namespace finetune::kernels {
namespace {

struct Coefficients {
  float gradient_scale, keep, lerp1, beta2, rest2, root_correction2, epsilon, step_size;
};

template <class Weight, class Moment, bool is_stochastic>
struct Update {
  Weight* weight;
  Moment *exp_avg, *exp_avg_sq;
  const float* gradient;
  Coefficients by;

  KOKKOS_FORCEINLINE_FUNCTION float operator()(std::int64_t i, std::uint32_t random) const {
    const float g = gradient[i] * by.gradient_scale;
    const float before = to_float(exp_avg[i]);
    const float m = before + by.lerp1 * (g - before);
    const float v = to_float(exp_avg_sq[i]) * by.beta2 + by.rest2 * g * g;
    exp_avg[i] = stored_as<Moment, is_stochastic>(m, bits_for_exp_avg(random));
    exp_avg_sq[i] = stored_as<Moment, is_stochastic>(v, bits_for_exp_avg_sq(random));
    const float denominator = std::sqrt(v) / by.root_correction2 + by.epsilon;
    const float updated = to_float(weight[i]) * by.keep - by.step_size * m / denominator;
    weight[i] = stored_as<Weight, is_stochastic>(updated, bits_for_weight(random));
    return is_stochastic ? to_float(weight[i]) : updated;
  }
};

template <class Weight, class Moment>
Coefficients numbers(const AdamWStep<Weight, Moment>& args) {
  const double correction1 = 1.0 - std::pow(args.beta1, static_cast<double>(args.step));
  const double correction2 = 1.0 - std::pow(args.beta2, static_cast<double>(args.step));
  const auto single = [](double value) { return static_cast<float>(value); };
  return {.gradient_scale = args.gradient_scale,
          .keep = single(1.0 - args.lr * args.weight_decay),
          .lerp1 = single(1.0 - args.beta1),
          .beta2 = single(args.beta2),
          .rest2 = single(1.0 - args.beta2),
          .root_correction2 = single(std::sqrt(correction2)),
          .epsilon = single(args.epsilon),
          .step_size = single(args.lr / correction1)};
}

template <bool is_stochastic, class Weight, class Moment, class Copy>
void launch_adamw(const AdamWStep<Weight, Moment>& args, std::span<Copy> copy, const Place& place) {
  launch_update<is_stochastic>(args,
                               Update<Weight, Moment, is_stochastic>{
                                   args.weight.data(), args.exp_avg.data(), args.exp_avg_sq.data(),
                                   args.gradient.data(), numbers(args)},
                               copy, place);
}

template <class Weight, class Moment, class Copy>
void step(const AdamWStep<Weight, Moment>& args, std::span<Copy> copy, const Place& place) {
  constexpr bool is_narrow = std::is_same_v<Weight, bf16> || std::is_same_v<Moment, bf16>;
  if constexpr (is_narrow) {
    if (args.rounding) return launch_adamw<true>(args, copy, place);
  }
  launch_adamw<false>(args, copy, place);
}

}  // namespace

template <class Weight, class Moment>
void adamw(const AdamWStep<Weight, Moment>& args, const Place& place) {
  const std::size_t count = args.weight.size();
  core::check(args.exp_avg.size() == count && args.exp_avg_sq.size() == count &&
                  args.gradient.size() == count,
              "adamw: weight, moments and gradient have the same size");
  core::check(args.step >= 1, "adamw: steps count from 1");
  with_copy(args, [&](auto copy) { step(args, copy, place); });
}

template void adamw(const AdamWStep<float, float>&, const Place&);
template void adamw(const AdamWStep<float, bf16>&, const Place&);
template void adamw(const AdamWStep<bf16, float>&, const Place&);
template void adamw(const AdamWStep<bf16, bf16>&, const Place&);

}  // namespace finetune::kernels
