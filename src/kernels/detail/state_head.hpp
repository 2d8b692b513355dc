#pragma once
// SPDX-License-Identifier: Apache-2.0
// Of the state space: the convolution of some channels, and how a head's state goes from a token to
// the next.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/detail/arithmetic.hpp"
#include "kernels/detail/workspace.hpp"
#include "kernels/state_space.hpp"

namespace finetune::kernels::state {

using std::int64_t;

/// Channels that are convolved by one thread, neighbours.
inline constexpr int64_t channels_together = 64;

inline int64_t num_blocks(const StateShape& shape) {
  return (shape.channels() + channels_together - 1) / channels_together;
}

/// Of a run, at most state_chunk tokens.
struct Piece {
  int64_t first = 0, count = 0;
};

inline std::vector<Piece> pieces_of(std::span<const MemoryRun> runs) {
  std::vector<Piece> pieces;
  for (const MemoryRun& run : runs)
    for (int64_t begin = 0; begin < run.count; begin += state_chunk)
      pieces.push_back({run.first + begin, std::min(state_chunk, run.count - begin)});
  return pieces;
}

/// Some channels on their way through a run. What is of tokens is of some at a time, fp32.
template <class T>
class Convolution {
 public:
  Convolution(const StateSpace<T>& args, int64_t block)
      : args_(args),
        shape_(args.shape),
        history_(shape_.taps - 1),
        first_(block * channels_together),
        width_(std::min(channels_together, shape_.channels() - first_)),
        raw_((history_ + state_chunk) * channels_together),
        mixed_(state_chunk * channels_together),
        taps_(shape_.taps * channels_together) {
    for (int64_t c = 0; c < width_; ++c)
      for (int64_t tap = 0; tap < shape_.taps; ++tap)
        taps_.data()[tap * channels_together + c] = args_.taps[(first_ + c) * shape_.taps + tap];
  }

 protected:
  float* raw(int64_t row) const { return raw_.data() + row * channels_together; }
  float* mixed(int64_t t) const { return mixed_.data() + t * channels_together; }
  const float* taps(int64_t tap) const { return taps_.data() + tap * channels_together; }

  /// Tokens [begin, begin + count) of the run, convolved: before SiLU.
  void load(const MemoryRun& run, int64_t begin, int64_t count) {
    for (int64_t t = -history_; t < count; ++t)
      load_raw(run, begin + t, raw(t + history_));
    for (int64_t t = 0; t < count; ++t) {
      float* sums = mixed(t);
      std::copy_n(args_.taps_bias + first_, width_, sums);
      for (int64_t tap = 0; tap < shape_.taps; ++tap) {
        const float* of_tap = taps(tap);
        const float* row = raw(t + tap);
#pragma GCC ivdep
        for (int64_t c = 0; c < width_; ++c)
          sums[c] += of_tap[c] * row[c];
      }
    }
  }

  const StateSpace<T>& args_;
  const StateShape& shape_;
  int64_t history_;
  int64_t first_;  ///< channel
  int64_t width_;

 private:
  void load_raw(const MemoryRun& run, int64_t t, float* row) const {
    if (t >= 0) {
      const T* x = args_.x + (run.first + t) * shape_.inputs() + shape_.outputs() + first_;
      for (int64_t c = 0; c < width_; ++c)
        row[c] = to_float(x[c]);
    } else if (run.memory != nullptr) {
      std::copy_n(run.memory + (history_ + t) * shape_.channels() + first_, width_, row);
    } else {
      std::fill(row, row + width_, 0.0f);
    }
  }

  Scratch<float> raw_;    ///< [taps - 1 + tokens, together]: inputs, with those before
  Scratch<float> mixed_;  ///< [tokens, together]
  Scratch<float> taps_;   ///< [taps, together]
};

/// A head's token: vectors of S numbers, and of [padded K].
struct Token {
  const float* writes;  ///< [S]
  const float* reads;   ///< [S]
  const float* value;
  float fade, step;
};

/// S = fade S + writes (step value)^T; read = S^T reads. Nothing that is written is read under
/// another name: the compiler does not know.
template <int64_t width>
void advance_columns(float* state, int64_t stride, int64_t state_size, const Token& token,
                     float* read) {
  float sum[width] = {}, put[width];
  const float fade = token.fade;
  for (int64_t k = 0; k < width; ++k)
    put[k] = token.step * token.value[k];
  for (int64_t s = 0; s < state_size; ++s) {
    const float writes = token.writes[s], reads = token.reads[s];
    float* row = state + s * stride;
#pragma GCC ivdep
    for (int64_t k = 0; k < width; ++k) {
      const float now = fade * row[k] + writes * put[k];
      row[k] = now;
      sum[k] += reads * now;
    }
  }
  for (int64_t k = 0; k < width; ++k)
    read[k] = sum[k];
}

inline void advance(float* state, int64_t stride, int64_t state_size, const Token& token,
                    float* read) {
  constexpr int64_t wide = 4 * vector_lanes;
  int64_t k = 0;
  const auto part = [&] {
    return Token{token.writes, token.reads, token.value + k, token.fade, token.step};
  };
  for (; k + wide <= stride; k += wide)
    advance_columns<wide>(state + k, stride, state_size, part(), read + k);
  for (; k < stride; k += vector_lanes)
    advance_columns<vector_lanes>(state + k, stride, state_size, part(), read + k);
}

/// One head on its way through a run, whose channels are convolved already.
template <class T>
class StateHead {
 public:
  StateHead(const StateSpace<T>& args, int64_t head, Workspace& work)
      : args_(args),
        shape_(args.shape),
        head_(head),
        group_(head / shape_.heads_per_group),
        padded_(shape_.padded_head()),
        rate_(-std::exp(args.decay[head])),
        value_(work.take(state_chunk * padded_)),
        fade_(work.take(state_chunk)),
        step_(work.take(state_chunk)),
        read_(work.take(padded_)) {
    std::fill(value_, value_ + state_chunk * padded_, 0.0f);
  }

  /// Through all of a run, and what its tokens read.
  void go_through(const MemoryRun& run, float* state) {
    for (int64_t begin = 0; begin < run.count; begin += state_chunk) {
      const int64_t count = std::min(state_chunk, run.count - begin);
      load(run.first + begin, count);
      for (int64_t t = 0; t < count; ++t) {
        advance(state, padded_, shape_.state_size, token(run.first + begin, t), read_);
        write(run.first + begin, t);
      }
    }
  }

 protected:
  /// Tokens [first, first + count).
  void load(int64_t first, int64_t count) {
    for (int64_t t = 0; t < count; ++t) {
      std::copy_n(args_.mixed + (first + t) * shape_.channels() + head_ * shape_.head_size,
                  shape_.head_size, value_ + t * padded_);
      step_[t] = std::clamp(softplus(step_input(first + t)), shape_.least_step, shape_.most_step);
      fade_[t] = std::exp(rate_ * step_[t]);
    }
  }

  float step_input(int64_t token) const {
    return to_float(args_.x[token * shape_.inputs() + step_place()]) + args_.step_bias[head_];
  }
  int64_t step_place() const { return shape_.outputs() + shape_.channels() + head_; }

  Token token(int64_t first, int64_t t) const {
    const float* keys = args_.mixed + (first + t) * shape_.channels() + shape_.outputs() +
                        group_ * shape_.state_size;
    return {keys, keys + shape_.keys(), value_ + t * padded_, fade_[t], step_[t]};
  }

  float* outputs(int64_t token) const {
    return args_.read + token * shape_.outputs() + head_ * shape_.head_size;
  }

  const StateSpace<T>& args_;
  const StateShape& shape_;
  int64_t head_, group_;
  int64_t padded_;  ///< of K
  float rate_;      ///< of fading
  float* value_;    ///< [tokens, padded K]
  float* fade_;     ///< [tokens]
  float* step_;
  float* read_;

 private:
  void write(int64_t first, int64_t t) {
    float* out = outputs(first + t);
    const float skip = args_.skip[head_];
    const float* value = value_ + t * padded_;
    for (int64_t k = 0; k < shape_.head_size; ++k)
      out[k] = read_[k] + skip * value[k];
  }
};

using Lanes [[gnu::vector_size(vector_lanes * sizeof(float))]] = float;

inline void load_lanes(Lanes& lanes, const float* from) {
  std::memcpy(&lanes, from, sizeof lanes);
}

/// A state on the way back: [padded S / lanes, K, lanes]. On the way forward every channel that
/// reads is a sum over S; here every channel of the two others is one, and memory is passed in
/// order. next = fade state + (step value) writes^T.
struct ToNext {
  const float* writes;  ///< [padded S]
  const float* value;
  float fade, step;

  void operator()(const float* state, float* next, int64_t head_size, int64_t padded_state) const {
    for (int64_t s = 0; s < padded_state; s += vector_lanes) {
      Lanes of_key;
      load_lanes(of_key, writes + s);
      for (int64_t k = 0; k < head_size; ++k) {
        const int64_t at = s * head_size + k * vector_lanes;
        Lanes row;
        load_lanes(row, state + at);
        row = fade * row + (step * value[k]) * of_key;
        std::memcpy(next + at, &row, sizeof row);
      }
    }
  }
};

/// 1 / rms of `size` numbers.
inline float scale_of(const float* x, int64_t size, float eps) {
  float sum = 0.0f;
  for (int64_t i = 0; i < size; ++i)
    sum += x[i] * x[i];
  return 1.0f / std::sqrt(sum / static_cast<float>(size) + eps);
}

// In state_space.cpp; in both passes.

/// Writes `mixed`, and what runs remember of inputs.
template <class T>
void convolve(const StateSpace<T>& args);
/// Writes `read`, and what runs remember of states.
template <class T>
void read_states(const StateSpace<T>& args);

}  // namespace finetune::kernels::state
