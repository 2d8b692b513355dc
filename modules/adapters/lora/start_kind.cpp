// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/start_kind.hpp"

#include <charconv>

namespace finetune::adapters::lora {
namespace {

constexpr int code_of_olora = 1, code_of_pissa = 2;
constexpr int most_iterations = 1000;

}  // namespace

std::optional<StartKind> StartKind::parse(std::string_view name) {
  if (name == "lora") return StartKind{};
  if (name == "olora") return StartKind{Method::olora};
  if (name == "pissa") return StartKind{Method::pissa};
  constexpr std::string_view with_number = "pissa_niter_";
  if (!name.starts_with(with_number)) return std::nullopt;
  name.remove_prefix(with_number.size());
  StartKind kind{Method::pissa};
  const auto [stop, error] =
      std::from_chars(name.data(), name.data() + name.size(), kind.num_iterations);
  const bool is_number = error == std::errc() && stop == name.data() + name.size();
  if (!is_number || kind.num_iterations < 1 || kind.num_iterations > most_iterations)
    return std::nullopt;
  return kind;
}

int StartKind::code() const {
  if (method == Method::lora) return 0;
  return method == Method::olora ? code_of_olora : code_of_pissa + num_iterations;
}

StartKind StartKind::of_code(int code) {
  if (code == 0) return {};
  if (code == code_of_olora) return {Method::olora};
  return {Method::pissa, code - code_of_pissa};
}

}  // namespace finetune::adapters::lora
