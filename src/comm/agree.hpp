#pragma once
// SPDX-License-Identifier: Apache-2.0
// Set-up code that may fail on some ranks: afterwards every rank has thrown, or none has.

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "comm/communicator.hpp"
#include "core/error.hpp"

namespace finetune::comm {

/// The error of the first failing rank, thrown on every rank of the communicator.
class AgreedError : public core::Error {
 public:
  using core::Error::Error;
};

/// Runs `f`, which must not communicate but on communicators whose ranks all throw if one does, and
/// agrees on the outcome with one all-reduce.
/// Collective on `comm`. Throws: AgreedError with the kind and message of the lowest rank that
/// threw.
void agree_all(const Communicator& comm, const std::function<void()>& f);

/// As agree_all, handing on what `f` returns.
template <typename F>
auto agree(const Communicator& comm, F&& f) -> std::invoke_result_t<F> {
  if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
    agree_all(comm, std::forward<F>(f));
  } else {
    std::optional<std::invoke_result_t<F>> result;
    agree_all(comm, [&] { result.emplace(f()); });
    return std::move(*result);
  }
}

/// Refuses a run whose ranks were started differently. `what` names the thing compared.
/// Collective on `comm`. Throws: AgreedError of ErrorKind::deck naming a rank that differs from the
/// root.
void require_equal(const Communicator& comm, const std::string& what, const std::string& value);

}  // namespace finetune::comm
