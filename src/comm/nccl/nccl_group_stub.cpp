// SPDX-License-Identifier: Apache-2.0
// device_stream.hpp and group_factory.hpp in a build without CUDA: nothing can be made.
#include "comm/group_factory.hpp"
#include "comm/versions.hpp"
#include "core/error.hpp"

namespace finetune::comm {
namespace {

[[noreturn]] void fail_without_nccl() {
  core::fail(core::ErrorKind::environment,
             {"NCCL", "this program was built without CUDA", "NCCL moves device memory only",
              "Build it with -DFINETUNE_WITH_CUDA=ON."});
}

}  // namespace

struct DeviceStream::Events {};

DeviceStream::DeviceStream(std::function<void*()>) {
  fail_without_nccl();
}

DeviceStream::~DeviceStream() = default;

// Never reached: there is no object to call them on.
void* DeviceStream::stream() const {
  return nullptr;
}
void DeviceStream::follow_compute() {}
Ticket DeviceStream::mark(const char*, const Communicator&) {
  return nothing_started;
}
void DeviceStream::make_compute_wait(Ticket, Stalls&) {}
double DeviceStream::take_s(Stalls&) {
  return 0;
}
void DeviceStream::synchronize() {}
void DeviceStream::add_group(const void*, std::function<void()>, std::function<void()>) {}
void DeviceStream::remove_group(const void*) {}
void DeviceStream::run(const std::function<void()>&) {}
void DeviceStream::abandon() {}

std::string nccl_version() {
  return {};
}

std::unique_ptr<Group> make_nccl_group(const Communicator&, std::shared_ptr<DeviceStream>) {
  fail_without_nccl();
}

}  // namespace finetune::comm
