// SPDX-License-Identifier: Apache-2.0
// A key head is one thread's work: what its tokens read is made ready some tokens at a time, then
// its value heads go through them one by one.
#include "kernels/delta_rule.hpp"

#include <algorithm>
#include <iterator>

#include "kernels/detail/delta_head.hpp"
#include "kernels/detail/host_threads.hpp"

namespace finetune::kernels {
namespace delta {
namespace {

/// fp32 numbers that a thread has.
int64_t forward_scratch(const DeltaShape& shape) {
  const int64_t values = shape.values_per_key * shape.padded_value();
  return shape.values_per_key * shape.matrix() +
         delta_chunk * (2 * shape.channels_of_key() + 2 * shape.key_size + values + 2 +
                        2 * shape.values_per_key) +
         (2 * shape.taps - 1) * shape.channels_of_key() + 2 * shape.padded_value();
}

template <class T>
class ForwardHead : KeyHead<T> {
  using Base = KeyHead<T>;
  using Base::padded_, Base::shape_;

 public:
  ForwardHead(const DeltaRuleForward<T>& args, int64_t head, Workspace& work)
      : Base(args, head, work),
        out_(args.out),
        own_memory_(work.take(shape_.values_per_key * shape_.matrix())),
        error_(work.take(padded_)),
        read_(work.take(padded_)) {}

  void go_through(const MemoryRun& run) {
    const int64_t size = shape_.values_per_key * shape_.matrix();
    float* memory = own_memory_;
    if (run.memory != nullptr)
      memory = run.memory + Base::history_ * shape_.channels() + Base::head_ * size;
    else
      std::fill(memory, memory + size, 0.0f);
    for (int64_t begin = 0; begin < run.count; begin += delta_chunk) {
      const int64_t count = std::min(delta_chunk, run.count - begin);
      this->load(run, begin, count);
      for (int64_t t = 0; t < count; ++t)
        for (int64_t i = 0; i < shape_.values_per_key; ++i) {
          advance(memory + i * shape_.matrix(), padded_, shape_.key_size, this->token(t, i), error_,
                  read_);
          write(run.first + begin + t, i);
        }
      if (begin + count == run.count) remember(run, count);
    }
  }

 private:
  void write(int64_t token, int64_t i) {
    const float scale = this->output_scale(read_);
    const T* x = this->row(token);
    T* out = out_ + token * shape_.outputs() + this->value_head(i) * shape_.value_size;
    for (int64_t v = 0; v < shape_.value_size; ++v) {
      const float gate = this->gate(x, i, v);
      out[v] = round_to<T>(Base::args_.norm[v] * (read_[v] * scale) * (gate * sigmoid(gate)));
    }
  }

  /// The inputs of the run's last tokens, of which the last `count` are loaded.
  void remember(const MemoryRun& run, int64_t count) {
    if (run.memory == nullptr) return;
    this->for_each_segment([&](int64_t, int64_t channel, int64_t own, int64_t size) {
      for (int64_t i = 0; i < Base::history_; ++i)
        std::copy_n(Base::raw_ + (count + i) * Base::width_ + own, size,
                    run.memory + i * shape_.channels() + channel);
    });
  }

  T* out_;
  float* own_memory_;
  float* error_;
  float* read_;
};

}  // namespace
}  // namespace delta

template <class T>
void delta_rule(const DeltaRuleForward<T>& args) {
  const int64_t heads = args.shape.num_key_heads;
  launch(std::ssize(args.runs) * heads, 1, [&args, heads](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      Workspace work(delta::forward_scratch(args.shape));
      delta::ForwardHead<T>(args, i % heads, work)
          .go_through(args.runs[static_cast<std::size_t>(i / heads)]);
    }
  });
}

template void delta_rule<float>(const DeltaRuleForward<float>&);
template void delta_rule<bf16>(const DeltaRuleForward<bf16>&);

}  // namespace finetune::kernels
