#pragma once
// SPDX-License-Identifier: Apache-2.0
// Values of the tokens of a micro-batch, of which ranks that share it each know some.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/steps/micro_batch.hpp"
#include "model/context.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

/// Of all tokens, where `own` [N] are those of this rank's, on the host. Collective on cp.
template <typename T>
std::vector<T> of_all_tokens(const Engine& engine, const data::MicroBatch& batch,
                             const at::Tensor& own_N) {
  const T* own = own_N.const_data_ptr<T>();
  const auto& cp = engine.shards.groups().cp;
  if (!cp) return {own, own + own_N.numel()};
  std::vector<T> all(batch.ids.size());
  const model::ContextLayout context(batch.batch, batch.length, cp->size(), cp->rank());
  for (const std::int64_t token : context.own_tokens())
    all[static_cast<std::size_t>(token)] = *own++;
  cp->communicator().all_reduce(std::span(all), comm::Reduce::sum);
  return all;
}

}  // namespace finetune::train
