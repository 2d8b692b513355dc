// SPDX-License-Identifier: Apache-2.0
// device_stream.hpp without CUDA: a stream that nothing is put on.
#include "comm/nccl/detail/device_stream.hpp"

#include <utility>

namespace finetune::comm {

struct DeviceStream::Events {};

DeviceStream::DeviceStream(std::function<void*()> compute_stream)
    : compute_stream_(std::move(compute_stream)) {}

DeviceStream::~DeviceStream() = default;

void* DeviceStream::stream() const {
  return nullptr;
}
Ticket DeviceStream::start(const char*, const Communicator&, std::int64_t, std::function<void()>) {
  return nothing_started;
}
Ticket DeviceStream::hold_back(std::function<void()>) {
  return nothing_started;
}
void DeviceStream::release() {}
void DeviceStream::drop() {}
void DeviceStream::settle() noexcept {}
void DeviceStream::make_compute_wait(Ticket, Stalls&) {}
double DeviceStream::take_s(Stalls&) {
  return 0;
}
void DeviceStream::synchronize() {}
void DeviceStream::add_group(const void*, std::function<void()>, std::function<void()>) {}
void DeviceStream::remove_group(const void*) {}
void DeviceStream::abandon() {}

}  // namespace finetune::comm
