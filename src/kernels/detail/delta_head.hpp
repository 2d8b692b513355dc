#pragma once
// SPDX-License-Identifier: Apache-2.0
// Of the gated delta rule: what a key head's tokens read, and how a value head's memory goes from a
// token to the next.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/delta_rule.hpp"
#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/workspace.hpp"

namespace finetune::kernels::delta {

using std::int64_t;

inline constexpr float length_eps = 1e-6f;

/// Where a head's inputs begin in a token's row. Values and gates of its value heads are neighbours
/// in both layouts, so are their rates and decays.
struct Places {
  int64_t query, key, values, gates, rates, decays;

  Places(const DeltaShape& s, int64_t head) {
    const int64_t small = s.channels() + s.num_value_heads() * s.value_size;
    if (s.is_by_key_head) {
      query = head * (s.channels_of_key() + s.values());
      key = query + s.key_size;
      values = key + s.key_size;
      gates = values + s.values();
      rates = small + head * 2 * s.values_per_key;
      decays = rates + s.values_per_key;
      return;
    }
    query = head * s.key_size;
    key = (s.num_key_heads + head) * s.key_size;
    values = 2 * s.num_key_heads * s.key_size + head * s.values();
    gates = s.channels() + head * s.values();
    rates = small + head * s.values_per_key;
    decays = rates + s.num_value_heads();
  }
};

/// A value head's token: what is read and written of V values is [padded V].
struct Token {
  const float* query;  ///< [K]
  const float* key;    ///< [K]
  const float* value;
  float fade, rate;
};

/// S = fade S + key (rate (value - fade S^T key))^T; out = S^T query. `error`: what is in the
/// brackets. Nothing that is written is read under another name: the compiler does not know.
template <int64_t width>
void advance_columns(float* memory, int64_t stride, int64_t key_size, const Token& token,
                     float* error, float* out) {
  float seen[width] = {}, read[width] = {}, change[width];
  const float fade = token.fade, rate = token.rate;
  for (int64_t k = 0; k < key_size; ++k) {
    const float key = token.key[k];
    const float* row = memory + k * stride;
#pragma GCC ivdep
    for (int64_t v = 0; v < width; ++v)
      seen[v] += key * row[v];
  }
  for (int64_t v = 0; v < width; ++v) {
    error[v] = token.value[v] - fade * seen[v];
    change[v] = rate * error[v];
  }
  for (int64_t k = 0; k < key_size; ++k) {
    const float key = token.key[k], query = token.query[k];
    float* row = memory + k * stride;
#pragma GCC ivdep
    for (int64_t v = 0; v < width; ++v) {
      const float now = fade * row[v] + key * change[v];
      row[v] = now;
      read[v] += query * now;
    }
  }
  for (int64_t v = 0; v < width; ++v)
    out[v] = read[v];
}

inline void advance(float* memory, int64_t stride, int64_t key_size, const Token& token,
                    float* error, float* out) {
  constexpr int64_t wide = 4 * vector_lanes;
  int64_t v = 0;
  const auto part = [&] {
    return Token{token.query, token.key, token.value + v, token.fade, token.rate};
  };
  for (; v + wide <= stride; v += wide)
    advance_columns<wide>(memory + v, stride, key_size, part(), error + v, out + v);
  for (; v < stride; v += vector_lanes)
    advance_columns<vector_lanes>(memory + v, stride, key_size, part(), error + v, out + v);
}

/// One key head on its way through a run. What is of tokens is of some at a time, fp32.
template <class T>
class KeyHead {
 public:
  KeyHead(const DeltaRule<T>& args, int64_t head, Workspace& work)
      : args_(args),
        shape_(args.shape),
        head_(head),
        at_(args.shape, head),
        history_(shape_.taps - 1),
        width_(shape_.channels_of_key()),
        padded_(shape_.padded_value()),
        taps_(work.take(shape_.taps * width_)),
        raw_(work.take((history_ + delta_chunk) * width_)),
        mixed_(work.take(delta_chunk * width_)),
        query_(work.take(delta_chunk * shape_.key_size)),
        key_(work.take(delta_chunk * shape_.key_size)),
        value_(work.take(delta_chunk * shape_.values_per_key * padded_)),
        query_scale_(work.take(delta_chunk)),
        key_scale_(work.take(delta_chunk)),
        fade_(work.take(delta_chunk * shape_.values_per_key)),
        rate_(work.take(delta_chunk * shape_.values_per_key)) {
    for_each_segment([&](int64_t, int64_t channel, int64_t own, int64_t size) {
      for (int64_t i = 0; i < size; ++i)
        for (int64_t tap = 0; tap < shape_.taps; ++tap)
          taps_[tap * width_ + own + i] = args_.taps[(channel + i) * shape_.taps + tap];
    });
    std::fill(value_, value_ + delta_chunk * shape_.values_per_key * padded_, 0.0f);
  }

 protected:
  /// f(place in a row of inputs, channel, place in this head's own channels, size).
  template <class F>
  void for_each_segment(const F& f) const {
    const int64_t k = shape_.key_size, keys = shape_.num_key_heads * k;
    f(at_.query, head_ * k, 0, k);
    f(at_.key, keys + head_ * k, k, k);
    f(at_.values, 2 * keys + head_ * shape_.values(), 2 * k, shape_.values());
  }

  const T* row(int64_t token) const { return args_.x + token * shape_.inputs(); }
  int64_t value_head(int64_t i) const { return head_ * shape_.values_per_key + i; }

  /// Tokens [begin, begin + count) of the run: convolved, and made into queries, keys and values.
  void load(const MemoryRun& run, int64_t begin, int64_t count) {
    load_raw(run, begin, count);
    for (int64_t t = 0; t < count; ++t) {
      float* mixed = mixed_ + t * width_;
      std::fill(mixed, mixed + width_, 0.0f);
      for (int64_t tap = 0; tap < shape_.taps; ++tap) {
        const float* raw = raw_ + (t + tap) * width_;
        const float* taps = taps_ + tap * width_;
        for (int64_t c = 0; c < width_; ++c)
          mixed[c] += taps[c] * raw[c];
      }
      normalise(mixed, query_ + t * shape_.key_size, query_scale_[t]);
      normalise(mixed + shape_.key_size, key_ + t * shape_.key_size, key_scale_[t]);
      const float to_scores = 1.0f / std::sqrt(static_cast<float>(shape_.key_size));
      for (int64_t k = 0; k < shape_.key_size; ++k)
        query_[t * shape_.key_size + k] *= to_scores;
      query_scale_[t] *= to_scores;
      load_values(t, row(run.first + begin + t));
    }
  }

  float decay_input(const T* x, int64_t i) const {
    return to_float(x[at_.decays + i]) + args_.decay_bias[value_head(i)];
  }
  float decay(int64_t i) const { return -std::exp(args_.decay[value_head(i)]); }
  float gate(const T* x, int64_t i, int64_t v) const {
    return to_float(x[at_.gates + i * shape_.value_size + v]);
  }

  Token token(int64_t t, int64_t i) const {
    const int64_t at = t * shape_.values_per_key + i;
    return {query_ + t * shape_.key_size, key_ + t * shape_.key_size, value_ + at * padded_,
            fade_[at], rate_[at]};
  }

  /// 1 / rms of what a head has read.
  float output_scale(const float* read) const {
    return 1.0f / std::sqrt(dot(read, read, padded_) / static_cast<float>(shape_.value_size) +
                            shape_.norm_eps);
  }

  const DeltaRule<T>& args_;
  const DeltaShape& shape_;
  int64_t head_;
  Places at_;
  int64_t history_;
  int64_t width_;   ///< own channels
  int64_t padded_;  ///< of V
  float* taps_;     ///< [taps, width]
  float* raw_;      ///< [taps - 1 + tokens, width]: inputs, with those before
  float* mixed_;    ///< [tokens, width]: convolved, before SiLU
  float* query_;    ///< [tokens, K]
  float* key_;
  float* value_;        ///< [tokens, R, padded V]
  float* query_scale_;  ///< [tokens]: of the query in what SiLU gave
  float* key_scale_;
  float* fade_;  ///< [tokens, R]
  float* rate_;

 private:
  void load_raw(const MemoryRun& run, int64_t begin, int64_t count) {
    for_each_segment([&](int64_t place, int64_t channel, int64_t own, int64_t size) {
      for (int64_t t = -history_; t < count; ++t) {
        float* raw = raw_ + (t + history_) * width_ + own;
        if (begin + t >= 0) {
          const T* x = row(run.first + begin + t) + place;
          for (int64_t i = 0; i < size; ++i)
            raw[i] = to_float(x[i]);
        } else if (run.memory != nullptr) {
          const float* kept = run.memory + (history_ + begin + t) * shape_.channels() + channel;
          std::copy_n(kept, size, raw);
        } else {
          std::fill(raw, raw + size, 0.0f);
        }
      }
    });
  }

  void normalise(const float* mixed, float* out, float& scale) const {
    float sum = 0.0f;
    for (int64_t k = 0; k < shape_.key_size; ++k) {
      out[k] = mixed[k] * sigmoid(mixed[k]);
      sum += out[k] * out[k];
    }
    scale = 1.0f / std::sqrt(sum + length_eps);
    for (int64_t k = 0; k < shape_.key_size; ++k)
      out[k] *= scale;
  }

  void load_values(int64_t t, const T* x) {
    for (int64_t i = 0; i < shape_.values_per_key; ++i) {
      const int64_t at = t * shape_.values_per_key + i;
      const float* mixed = mixed_ + t * width_ + 2 * shape_.key_size + i * shape_.value_size;
      for (int64_t v = 0; v < shape_.value_size; ++v)
        value_[at * padded_ + v] = mixed[v] * sigmoid(mixed[v]);
      fade_[at] = std::exp(decay(i) * softplus(decay_input(x, i)));
      rate_[at] = sigmoid(to_float(x[at_.rates + i]));
    }
  }
};

}  // namespace finetune::kernels::delta
