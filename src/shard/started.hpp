#pragma once
// SPDX-License-Identifier: Apache-2.0
// A collective that was started, with the memory that it reads and writes.

#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "comm/group.hpp"

namespace finetune::shard {

/// Keeps the memory until the collective is done. If it fails, or an error keeps anybody from
/// waiting for it, the memory stays for the rest of the process: messages may still be written
/// there, and other ranks may never come, so the end of the collective cannot be waited for.
class Started {
 public:
  Started() = default;  ///< nothing, which is done
  /// `start` starts it. `group` outlives this. Throws: what `start` throws.
  Started(comm::Group& group, std::vector<at::Tensor> memory,
          const std::function<comm::Ticket()>& start);
  ~Started();
  Started(Started&& other) noexcept;
  Started& operator=(Started&& other) noexcept;
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  bool is_done() const { return group_ == nullptr; }

  /// Returns when it is done, and lets go of the memory. Throws: what `group` throws.
  void wait();

 private:
  Started(comm::Group& group, std::vector<at::Tensor> memory);
  void leave_behind() noexcept;

  comm::Group* group_ = nullptr;
  comm::Ticket ticket_ = comm::nothing_started;
  std::vector<at::Tensor> memory_;
};

}  // namespace finetune::shard
