// SPDX-License-Identifier: Apache-2.0
// The memory before every chunk is kept on the way through a sample; back through a chunk, that of
// the tokens between is computed once more.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/delta_rule.hpp"
#include "kernels/detail/delta_head.hpp"
#include "kernels/detail/host_threads.hpp"

namespace finetune::kernels {
namespace delta {
namespace {

template <class T>
class BackwardHead : KeyHead<T> {
  using Base = KeyHead<T>;
  using Base::args_, Base::padded_, Base::shape_, Base::width_, Base::history_;

 public:
  BackwardHead(const DeltaRuleBackward<T>& args, int64_t head, int64_t longest, Workspace& work)
      : Base(args, head, work),
        back_(args),
        matrices_(shape_.values_per_key * shape_.matrix()),
        before_(work.take((longest + delta_chunk - 1) / delta_chunk * matrices_)),
        memory_(work.take(matrices_)),
        d_memory_(work.take(matrices_)),
        after_(work.take((delta_chunk + 1) * shape_.matrix())),
        errors_(work.take(delta_chunk * padded_)),
        reads_(work.take(delta_chunk * padded_)),
        d_query_(work.take(delta_chunk * shape_.key_size)),
        d_key_(work.take(delta_chunk * shape_.key_size)),
        d_value_(work.take(delta_chunk * shape_.values_per_key * padded_)),
        d_mixed_(work.take((delta_chunk + history_) * width_)),
        d_taps_(work.take(shape_.taps * width_)),
        d_norm_(work.take(padded_)),
        d_read_(work.take(padded_)),
        change_(work.take(padded_)),
        d_change_(work.take(padded_)),
        d_seen_(work.take(padded_)),
        fade_lanes_(work.take(padded_)) {
    std::fill(d_taps_, d_taps_ + shape_.taps * width_, 0.0f);
    std::fill(d_norm_, d_norm_ + padded_, 0.0f);
    std::fill(d_read_, d_read_ + padded_, 0.0f);
    for (int64_t i = 0; i < shape_.values_per_key; ++i)
      back_.d_decay[this->value_head(i)] = back_.d_decay_bias[this->value_head(i)] = 0.0f;
  }

  void go_back(const MemoryRun& run) {
    remember_chunks(run);
    std::fill(d_memory_, d_memory_ + matrices_, 0.0f);
    std::fill(d_mixed_, d_mixed_ + history_ * width_, 0.0f);
    const int64_t last = (run.count - 1) / delta_chunk;
    for (int64_t chunk = last; chunk >= 0; --chunk) {
      const int64_t begin = chunk * delta_chunk, count = std::min(delta_chunk, run.count - begin);
      // What the later chunk's first tokens say of inputs before them.
      std::copy_backward(d_mixed_, d_mixed_ + history_ * width_,
                         d_mixed_ + (count + history_) * width_);
      this->load(run, begin, count);
      std::fill(d_query_, d_query_ + count * shape_.key_size, 0.0f);
      std::fill(d_key_, d_key_ + count * shape_.key_size, 0.0f);
      for (int64_t i = 0; i < shape_.values_per_key; ++i)
        value_head_back(run.first + begin, count, i, before_ + chunk * matrices_);
      for (int64_t t = 0; t < count; ++t)
        to_mixed(t);
      to_inputs(run.first + begin, count);
    }
  }

  /// After all runs.
  void finish() {
    this->for_each_segment([&](int64_t, int64_t channel, int64_t own, int64_t size) {
      for (int64_t i = 0; i < size; ++i)
        for (int64_t tap = 0; tap < shape_.taps; ++tap)
          back_.d_taps[(channel + i) * shape_.taps + tap] = d_taps_[tap * width_ + own + i];
    });
    std::copy_n(d_norm_, shape_.value_size, back_.d_norm + Base::head_ * shape_.value_size);
  }

 private:
  void remember_chunks(const MemoryRun& run) {
    std::fill(memory_, memory_ + matrices_, 0.0f);
    for (int64_t begin = 0; begin < run.count; begin += delta_chunk) {
      std::copy_n(memory_, matrices_, before_ + begin / delta_chunk * matrices_);
      const int64_t count = std::min(delta_chunk, run.count - begin);
      if (begin + count == run.count) return;
      this->load(run, begin, count);
      for (int64_t t = 0; t < count; ++t)
        for (int64_t i = 0; i < shape_.values_per_key; ++i)
          advance(memory_ + i * shape_.matrix(), padded_, shape_.key_size, this->token(t, i),
                  errors_, reads_);
    }
  }

  /// Of value head `i` through the loaded tokens, the last first; `before`: its memory and the
  /// other heads' before these.
  void value_head_back(int64_t first, int64_t count, int64_t i, const float* before) {
    const int64_t size = shape_.matrix();
    std::copy_n(before + i * size, size, after_);
    for (int64_t t = 0; t < count; ++t) {
      std::copy_n(after_ + t * size, size, after_ + (t + 1) * size);
      advance(after_ + (t + 1) * size, padded_, shape_.key_size, this->token(t, i),
              errors_ + t * padded_, reads_ + t * padded_);
    }
    for (int64_t t = count - 1; t >= 0; --t) {
      output_back(first + t, i, reads_ + t * padded_);
      token_back(first + t, t, i);
    }
  }

  /// The gradient of what the head has read, and those of its gate and the norm.
  void output_back(int64_t token, int64_t i, const float* read) {
    const T* x = this->row(token);
    const int64_t head = this->value_head(i), size = shape_.value_size;
    const T* d_out = back_.d_out + token * shape_.outputs() + head * size;
    T* d_gates = back_.d_x + token * shape_.inputs() + Base::at_.gates + i * size;
    const float scale = this->output_scale(read);
    for (int64_t v = 0; v < size; ++v) {
      const float gate = this->gate(x, i, v), open = sigmoid(gate), normed = read[v] * scale;
      const float d = to_float(d_out[v]);
      d_norm_[v] += d * normed * (gate * open);
      d_gates[v] = round_to<T>(d * args_.norm[v] * normed * (open * (1.0f + gate * (1.0f - open))));
      d_read_[v] = d * args_.norm[v] * (gate * open);
    }
    const float mean = dot(d_read_, read, padded_) * scale * scale / static_cast<float>(size);
    for (int64_t v = 0; v < size; ++v)
      d_read_[v] = scale * (d_read_[v] - read[v] * mean);
  }

  void token_back(int64_t token, int64_t t, int64_t i) {
    const Token of = this->token(t, i);
    const int64_t at = t * shape_.values_per_key + i, keys = shape_.key_size;
    const float* error = errors_ + t * padded_;
    const float* before = after_ + t * shape_.matrix();
    const float* after = before + shape_.matrix();
    float* d_memory = d_memory_ + i * shape_.matrix();
    float* d_query = d_query_ + t * keys;
    float* d_key = d_key_ + t * keys;
    std::fill(d_change_, d_change_ + padded_, 0.0f);
    std::fill(fade_lanes_, fade_lanes_ + padded_, 0.0f);
    const float* d_read = d_read_;
    float* d_change = d_change_;
    const int64_t size = padded_;
    for (int64_t k = 0; k < keys; ++k) {
      float* d = d_memory + k * size;
      const float key = of.key[k], query = of.query[k];
#pragma GCC ivdep
      for (int64_t v = 0; v < size; ++v) {
        const float now = d[v] + query * d_read[v];
        d[v] = now;
        d_change[v] += key * now;
      }
      d_query[k] += dot(after + k * size, d_read, size);
    }
    float* d_value = d_value_ + at * size;
    float* d_seen = d_seen_;
    for (int64_t v = 0; v < size; ++v) {
      change_[v] = of.rate * error[v];
      d_value[v] = of.rate * d_change[v];
      d_seen[v] = -d_value[v];
    }
    float* fade_lanes = fade_lanes_;
    for (int64_t k = 0; k < keys; ++k) {
      float* d = d_memory + k * size;
      const float* old = before + k * size;
      const float key = of.key[k], fade = of.fade;
      d_key[k] += dot(d, change_, size) + fade * dot(old, d_seen, size);
#pragma GCC ivdep
      for (int64_t v = 0; v < size; ++v) {
        const float faded = d[v] + key * d_seen[v];
        fade_lanes[v] += faded * old[v];
        d[v] = fade * faded;
      }
    }
    float d_fade = 0.0f;
    for (int64_t v = 0; v < padded_; ++v)
      d_fade += fade_lanes_[v];
    rates_back(token, i, of, dot(d_change_, error, padded_), d_fade);
  }

  void rates_back(int64_t token, int64_t i, const Token& of, float d_rate, float d_fade) {
    const T* x = this->row(token);
    T* d_x = back_.d_x + token * shape_.inputs();
    const float input = this->decay_input(x, i), decay = this->decay(i);
    const float d_exponent = d_fade * of.fade;
    const float d_input = d_exponent * decay * sigmoid(input);
    back_.d_decay[this->value_head(i)] += d_exponent * decay * softplus(input);
    back_.d_decay_bias[this->value_head(i)] += d_input;
    d_x[Base::at_.decays + i] = round_to<T>(d_input);
    d_x[Base::at_.rates + i] = round_to<T>(d_rate * of.rate * (1.0f - of.rate));
  }

  /// Through lengths and SiLU, of one token.
  void to_mixed(int64_t t) {
    const int64_t keys = shape_.key_size;
    const float* mixed = Base::mixed_ + t * width_;
    float* d = d_mixed_ + t * width_;
    const float to_scores = 1.0f / std::sqrt(static_cast<float>(keys));
    normalised_back(mixed, Base::query_ + t * keys, d_query_ + t * keys, Base::query_scale_[t],
                    to_scores, d);
    normalised_back(mixed + keys, Base::key_ + t * keys, d_key_ + t * keys, Base::key_scale_[t],
                    1.0f, d + keys);
    for (int64_t i = 0; i < shape_.values_per_key; ++i) {
      const float* d_value = d_value_ + (t * shape_.values_per_key + i) * padded_;
      const int64_t own = 2 * keys + i * shape_.value_size;
      for (int64_t v = 0; v < shape_.value_size; ++v)
        d[own + v] = d_value[v] * silu_slope(mixed[own + v]);
    }
  }

  /// `made`: `factor` times a vector of length 1, `scale` times what SiLU gave.
  void normalised_back(const float* mixed, const float* made, const float* d_made, float scale,
                       float factor, float* d_mixed) const {
    float along = 0.0f;
    for (int64_t k = 0; k < shape_.key_size; ++k)
      along += made[k] * d_made[k];
    along /= factor * factor;
    for (int64_t k = 0; k < shape_.key_size; ++k)
      d_mixed[k] = scale * (d_made[k] - made[k] * along) * silu_slope(mixed[k]);
  }

  /// Through the convolution.
  void to_inputs(int64_t first, int64_t count) {
    for (int64_t tap = 0; tap < shape_.taps; ++tap)
      for (int64_t t = 0; t < count; ++t) {
        const float* d = d_mixed_ + t * width_;
        const float* raw = Base::raw_ + (t + tap) * width_;
        float* d_taps = d_taps_ + tap * width_;
        for (int64_t c = 0; c < width_; ++c)
          d_taps[c] += d[c] * raw[c];
      }
    float* d_raw = Base::raw_;  // no longer needed
    for (int64_t t = 0; t < count; ++t) {
      std::fill(d_raw, d_raw + width_, 0.0f);
      for (int64_t tap = 0; tap < shape_.taps; ++tap) {
        const float* d = d_mixed_ + (t + history_ - tap) * width_;
        const float* taps = Base::taps_ + tap * width_;
        for (int64_t c = 0; c < width_; ++c)
          d_raw[c] += taps[c] * d[c];
      }
      T* d_x = back_.d_x + (first + t) * shape_.inputs();
      this->for_each_segment([&](int64_t place, int64_t, int64_t own, int64_t size) {
        for (int64_t i = 0; i < size; ++i)
          d_x[place + i] = round_to<T>(d_raw[own + i]);
      });
    }
  }

  const DeltaRuleBackward<T>& back_;
  int64_t matrices_;  ///< elements of this head's matrices
  float* before_;     ///< [chunks, R, K, padded V]
  float* memory_;
  float* d_memory_;
  float* after_;  ///< [1 + tokens, K, padded V]: of one value head
  float* errors_;
  float* reads_;
  float* d_query_;
  float* d_key_;
  float* d_value_;
  float* d_mixed_;  ///< [tokens + taps - 1, width]: the last ones of the chunk behind
  float* d_taps_;
  float* d_norm_;
  float* d_read_;
  float* change_;
  float* d_change_;
  float* d_seen_;
  float* fade_lanes_;
};

}  // namespace
}  // namespace delta

template <class T>
void delta_rule_backward(const DeltaRuleBackward<T>& args) {
  int64_t longest = 0;
  for (const MemoryRun& run : args.runs)
    longest = std::max(longest, run.count);
  launch(args.shape.num_key_heads, 1, [&args, longest](int64_t first, int64_t last) {
    for (int64_t head = first; head < last; ++head) {
      Workspace work(delta_rule_scratch(args.shape, longest));
      delta::BackwardHead<T> back(args, head, longest, work);
      for (const MemoryRun& run : args.runs)
        if (run.count > 0) back.go_back(run);
      back.finish();
    }
  });
}

template void delta_rule_backward<float>(const DeltaRuleBackward<float>&);
template void delta_rule_backward<bf16>(const DeltaRuleBackward<bf16>&);

}  // namespace finetune::kernels
