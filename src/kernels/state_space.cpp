// SPDX-License-Identifier: Apache-2.0
// Three steps, each on all threads: some channels' convolution, a head's way through the tokens,
// and the norms of some tokens.
#include "kernels/state_space.hpp"

#include <algorithm>
#include <iterator>

#include "kernels/detail/host_threads.hpp"
#include "kernels/detail/state_head.hpp"

namespace finetune::kernels {
namespace state {
namespace {

template <class T>
class ForwardConvolution : Convolution<T> {
  using Base = Convolution<T>;
  using Base::args_, Base::shape_, Base::first_, Base::width_, Base::history_;

 public:
  using Base::Base;

  void go_through(const MemoryRun& run) {
    for (int64_t begin = 0; begin < run.count; begin += state_chunk) {
      const int64_t count = std::min(state_chunk, run.count - begin);
      this->load(run, begin, count);
      for (int64_t t = 0; t < count; ++t) {
        const float* sums = this->mixed(t);
        float* out = args_.mixed + (run.first + begin + t) * shape_.channels() + first_;
        for (int64_t c = 0; c < width_; ++c)
          out[c] = sums[c] * sigmoid(sums[c]);
      }
      if (begin + count == run.count) remember(run, count);
    }
  }

 private:
  /// The inputs of the run's last tokens, of which the last `count` are loaded.
  void remember(const MemoryRun& run, int64_t count) {
    if (run.memory == nullptr) return;
    for (int64_t i = 0; i < history_; ++i)
      std::copy_n(this->raw(count + i), width_, run.memory + i * shape_.channels() + first_);
  }
};

template <class T>
void norm_token(const StateSpaceForward<T>& args, int64_t token, float* gated) {
  const StateShape& shape = args.shape;
  const int64_t size = shape.outputs_of_group();
  const T* gates = args.x + token * shape.inputs();
  const float* read = args.read + token * shape.outputs();
  T* out = args.out + token * shape.outputs();
  for (int64_t begin = 0; begin < shape.outputs(); begin += size) {
    for (int64_t i = 0; i < size; ++i) {
      const float gate = to_float(gates[begin + i]);
      gated[i] = read[begin + i] * (gate * sigmoid(gate));
    }
    const float scale = scale_of(gated, size, shape.norm_eps);
    for (int64_t i = 0; i < size; ++i)
      out[begin + i] = round_to<T>(args.norm[begin + i] * (gated[i] * scale));
  }
}

}  // namespace

template <class T>
void convolve(const StateSpace<T>& args) {
  const int64_t blocks = num_blocks(args.shape);
  launch(std::ssize(args.runs) * blocks, 1, [&args, blocks](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      ForwardConvolution<T>(args, i % blocks)
          .go_through(args.runs[static_cast<std::size_t>(i / blocks)]);
  });
}

template <class T>
void read_states(const StateSpace<T>& args) {
  const StateShape& shape = args.shape;
  const int64_t heads = shape.num_heads();
  launch(std::ssize(args.runs) * heads, 1, [&args, &shape, heads](int64_t first, int64_t last) {
    const Scratch<float> own(shape.matrix());
    Workspace work(state_chunk * (shape.padded_head() + 2) + shape.padded_head());
    for (int64_t i = first; i < last; ++i) {
      const MemoryRun& run = args.runs[static_cast<std::size_t>(i / heads)];
      const int64_t head = i % heads;
      float* state = own.data();
      if (run.memory != nullptr)
        state = run.memory + (shape.taps - 1) * shape.channels() + head * shape.matrix();
      else
        std::fill(state, state + shape.matrix(), 0.0f);
      work.start_over();
      StateHead<T>(args, head, work).go_through(run, state);
    }
  });
}

template void convolve<float>(const StateSpace<float>&);
template void convolve<bf16>(const StateSpace<bf16>&);
template void read_states<float>(const StateSpace<float>&);
template void read_states<bf16>(const StateSpace<bf16>&);

}  // namespace state

template <class T>
void state_space(const StateSpaceForward<T>& args) {
  state::convolve<T>(args);
  state::read_states<T>(args);
  const auto pieces = state::pieces_of(args.runs);
  launch(std::ssize(pieces), 1, [&args, &pieces](std::int64_t first, std::int64_t last) {
    const Scratch<float> gated(args.shape.outputs_of_group());
    for (std::int64_t i = first; i < last; ++i) {
      const state::Piece piece = pieces[static_cast<std::size_t>(i)];
      for (std::int64_t t = 0; t < piece.count; ++t)
        state::norm_token(args, piece.first + t, gated.data());
    }
  });
}

template void state_space<float>(const StateSpaceForward<float>&);
template void state_space<bf16>(const StateSpaceForward<bf16>&);

}  // namespace finetune::kernels
