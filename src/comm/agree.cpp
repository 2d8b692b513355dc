// SPDX-License-Identifier: Apache-2.0
#include "comm/agree.hpp"

#include <fmt/format.h>

#include <exception>
#include <string>

#include "comm/environment.hpp"

namespace finetune::comm {

void agree_all(const Communicator& comm, const std::function<void()>& f) {
  std::string message;
  int code = 0;
  try {
    f();
  } catch (const std::exception& error) {
    message = message_of(error);
    code = exit_code(error);
  }
  const std::int64_t first =
      comm.all_reduce(std::int64_t{code != 0 ? comm.rank() : comm.size()}, Reduce::min);
  if (first == comm.size()) return;
  const int root = static_cast<int>(first);
  comm.broadcast(std::as_writable_bytes(std::span(&code, 1)), root);
  throw AgreedError(static_cast<core::ErrorKind>(code), comm.broadcast_text(message, root));
}

void require_equal(const Communicator& comm, const std::string& what, const std::string& value) {
  const std::string expected = comm.broadcast_text(value);
  agree_all(comm, [&] {
    if (value == expected) return;
    core::fail(core::ErrorKind::deck,
               {fmt::format("rank {}", comm.rank()), fmt::format("its {} is \"{}\"", what, value),
                fmt::format("rank 0 has \"{}\"", expected),
                "Start every rank with the same program, deck and arguments."});
  });
}

}  // namespace finetune::comm
