#pragma once
// SPDX-License-Identifier: Apache-2.0
// adapter.init: what low-rank matrices begin with. The names are those of PEFT.

#include <optional>
#include <string_view>

namespace finetune::adapters::lora {

/// `lora`: A random, B zeros. `pissa`: the largest singular values of the matrix and their vectors,
/// exactly or by so many iterations of a randomised method. `olora`: the first columns and rows of
/// its QR factorisation. Sources: Meng et al. 2024 (arXiv 2404.02948), Buyukakyuz 2024
/// (arXiv 2406.01775).
struct StartKind {
  enum class Method { lora, olora, pissa };
  Method method = Method::lora;
  int num_iterations = 0;  ///< of pissa; 0: exactly

  /// "lora", "olora", "pissa" or "pissa_niter_16"; nothing for what is none.
  static std::optional<StartKind> parse(std::string_view name);

  /// model::Adapted::start: 0 for lora.
  int code() const;
  static StartKind of_code(int code);
};

}  // namespace finetune::adapters::lora
