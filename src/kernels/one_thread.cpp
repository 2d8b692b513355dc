// SPDX-License-Identifier: Apache-2.0
#include "kernels/one_thread.hpp"

#include <ATen/Parallel.h>

namespace finetune::kernels {

// That sets the threads of OpenMP and of MKL, each for the calling thread.
OneThread::OneThread() : OneThread(at::get_num_threads()) {}
OneThread::OneThread(int num_threads) : before_(num_threads) {
  at::set_num_threads(1);
}
OneThread::~OneThread() {
  at::set_num_threads(before_);
}

}  // namespace finetune::kernels
