#pragma once
// SPDX-License-Identifier: Apache-2.0
// Computes on one thread what is to have the same bits on any number of threads.

namespace finetune::kernels {

/// While it lives, what the calling thread asks of libtorch, its BLAS and its LAPACK is computed by
/// that thread alone.
///
/// Both cut their work by the threads they have, and associate sums by how they cut: a QR
/// factorisation or a full sum differs for most matrices, a product for some numbers of rows (MKL
/// 2024.2 in fp32, two threads: 5, 6, 7, 9, 10 and 11). MKL does so in a parallel region as well,
/// where it has one thread: it cuts by the number that was set.
class OneThread {
 public:
  OneThread();
  /// On a thread of a parallel region, whose own number nobody has set: it gets `num_threads` then.
  explicit OneThread(int num_threads);
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace finetune::kernels
