// SPDX-License-Identifier: Apache-2.0
#include "model/upload.hpp"

#include "model/pinned.hpp"

namespace finetune::model {

at::Tensor upload(const at::Tensor& on_host, at::Device device) {
  if (device.is_cpu()) return on_host;
  // libtorch keeps pinned memory until copies from it are done, whoever lets go of the tensor.
  const at::Tensor staged = pinned_empty(on_host.sizes(), on_host.scalar_type());
  staged.copy_(on_host);
  return staged.to(device, on_host.scalar_type(), /*non_blocking=*/true);
}

}  // namespace finetune::model
