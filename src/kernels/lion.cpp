// SPDX-License-Identifier: Apache-2.0
#include "kernels/lion.hpp"

#include <type_traits>

#include "core/error.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/update_loop.hpp"

namespace finetune::kernels {
namespace {

struct LionNumbers {
  float gradient_scale, keep, beta1, rest1, beta2, rest2, lr;
};

template <class Weight, class Moment, bool is_stochastic>
struct LionUpdate {
  Weight* weight;
  Moment* exp_avg;
  const float* gradient;
  LionNumbers by;

  KOKKOS_FORCEINLINE_FUNCTION float operator()(std::int64_t i, std::uint32_t random) const {
    const float g = gradient[i] * by.gradient_scale;
    const float m = to_float(exp_avg[i]);
    const float direction = m * by.beta1 + by.rest1 * g;
    const float sign = direction > 0.0f ? 1.0f : direction < 0.0f ? -1.0f : 0.0f;
    exp_avg[i] =
        stored_as<Moment, is_stochastic>(m * by.beta2 + by.rest2 * g, bits_for_exp_avg(random));
    const float updated = to_float(weight[i]) * by.keep - by.lr * sign;
    weight[i] = stored_as<Weight, is_stochastic>(updated, bits_for_weight(random));
    return is_stochastic ? to_float(weight[i]) : updated;
  }
};

template <class Weight, class Moment>
LionNumbers numbers(const LionStep<Weight, Moment>& args) {
  const auto single = [](double value) { return static_cast<float>(value); };
  return {.gradient_scale = args.gradient_scale,
          .keep = single(1.0 - args.lr * args.weight_decay),
          .beta1 = single(args.beta1),
          .rest1 = single(1.0 - args.beta1),
          .beta2 = single(args.beta2),
          .rest2 = single(1.0 - args.beta2),
          .lr = single(args.lr)};
}

template <bool is_stochastic, class Weight, class Moment, class Copy>
void launch_lion(const LionStep<Weight, Moment>& args, std::span<Copy> copy, const Place& place) {
  launch_update<is_stochastic>(
      args,
      LionUpdate<Weight, Moment, is_stochastic>{args.weight.data(), args.exp_avg.data(),
                                                args.gradient.data(), numbers(args)},
      copy, place);
}

template <class Weight, class Moment, class Copy>
void step(const LionStep<Weight, Moment>& args, std::span<Copy> copy, const Place& place) {
  constexpr bool is_narrow = std::is_same_v<Weight, bf16> || std::is_same_v<Moment, bf16>;
  if constexpr (is_narrow) {
    if (args.rounding) return launch_lion<true>(args, copy, place);
  }
  launch_lion<false>(args, copy, place);
}

}  // namespace

template <class Weight, class Moment>
void lion(const LionStep<Weight, Moment>& args, const Place& place) {
  const std::size_t count = args.weight.size();
  core::check(args.exp_avg.size() == count && args.gradient.size() == count,
              "lion: weight, moment and gradient have the same size");
  with_copy(args, [&](auto copy) { step(args, copy, place); });
}

template void lion(const LionStep<float, float>&, const Place&);
template void lion(const LionStep<float, bf16>&, const Place&);
template void lion(const LionStep<bf16, float>&, const Place&);
template void lion(const LionStep<bf16, bf16>&, const Place&);

}  // namespace finetune::kernels
