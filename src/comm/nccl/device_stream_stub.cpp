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

}  // namespace finetune::comm
