// SPDX-License-Identifier: Apache-2.0
// What heads have read is computed again; then norms, heads and the convolution go back, each on
// all threads. A head keeps its state before every chunk on the way through a sample; back through
// a chunk, that of the tokens between is computed once more.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "kernels/detail/host_threads.hpp"
#include "kernels/detail/state_head.hpp"
#include "kernels/state_space.hpp"

namespace finetune::kernels {
namespace state {
namespace {

/// Gradients of what heads have read take its place; those of gates, and sums of the norm's.
template <class T>
void norm_back(const StateSpaceBackward<T>& args, int64_t token, float* gated, float* d_norm) {
  const StateShape& shape = args.shape;
  const int64_t size = shape.outputs_of_group();
  const T* gates = args.x + token * shape.inputs();
  T* d_gates = args.d_x + token * shape.inputs();
  float* read = args.read + token * shape.outputs();
  const T* d_out = args.d_out + token * shape.outputs();
  for (int64_t begin = 0; begin < shape.outputs(); begin += size) {
    for (int64_t i = 0; i < size; ++i) {
      const float gate = to_float(gates[begin + i]);
      gated[i] = read[begin + i] * (gate * sigmoid(gate));
    }
    const float scale = scale_of(gated, size, shape.norm_eps);
    float along = 0.0f;
    for (int64_t i = 0; i < size; ++i) {
      const float d = to_float(d_out[begin + i]);
      d_norm[begin + i] += d * (gated[i] * scale);
      along += d * args.norm[begin + i] * gated[i];
    }
    const float mean = along * scale * scale / static_cast<float>(size);
    for (int64_t i = 0; i < size; ++i) {
      const float gate = to_float(gates[begin + i]);
      const float d_normed = to_float(d_out[begin + i]) * args.norm[begin + i];
      const float d_gated = scale * (d_normed - gated[i] * mean);
      d_gates[begin + i] = round_to<T>(d_gated * read[begin + i] * silu_slope(gate));
      read[begin + i] = d_gated * (gate * sigmoid(gate));
    }
  }
}

template <class T>
void norms_back(const StateSpaceBackward<T>& args) {
  const auto pieces = pieces_of(args.runs);
  launch(std::ssize(pieces), 1, [&args, &pieces](int64_t first, int64_t last) {
    const Scratch<float> gated(args.shape.outputs_of_group());
    for (int64_t i = first; i < last; ++i) {
      const Piece piece = pieces[static_cast<std::size_t>(i)];
      float* d_norm = args.d_norm + i * args.shape.outputs();
      std::fill(d_norm, d_norm + args.shape.outputs(), 0.0f);
      for (int64_t t = 0; t < piece.count; ++t)
        norm_back(args, piece.first + t, gated.data(), d_norm);
    }
  });
}

template <class T>
class BackwardHead : StateHead<T> {
  using Base = StateHead<T>;
  using Base::args_, Base::shape_, Base::padded_, Base::head_;

 public:
  /// `d_keys`: of this head's team [N, 2 G S]; its first head writes, others add.
  BackwardHead(const StateSpaceBackward<T>& args, int64_t head, int64_t length, float* d_keys,
               bool adds, Workspace& work)
      : Base(args, head, work),
        back_(args),
        d_keys_(d_keys + Base::group_ * shape_.state_size),
        adds_(adds),
        stride_(shape_.padded_state()),
        matrix_(shape_.turned_matrix()),
        before_(work.take((length + state_chunk - 1) / state_chunk * matrix_)),
        marks_(work.take(state_chunk / state_tokens * matrix_)),
        states_(work.take(state_tokens * matrix_)),
        d_state_(work.take(matrix_)),
        keys_(work.take(state_chunk * 2 * stride_)),
        d_read_(work.take(padded_)),
        d_put_(work.take(padded_)),
        put_lanes_(work.take(shape_.head_size * vector_lanes)) {
    for (float* padded : {d_read_, d_put_})
      std::fill(padded, padded + padded_, 0.0f);
    std::fill(keys_, keys_ + state_chunk * 2 * stride_, 0.0f);
  }

  void go_back(const MemoryRun& run, float* d_numbers) {
    d_decay_ = d_step_bias_ = d_skip_ = 0.0f;
    keep_states(run);
    std::fill(d_state_, d_state_ + matrix_, 0.0f);
    for (int64_t chunk = (run.count - 1) / state_chunk; chunk >= 0; --chunk) {
      const int64_t begin = chunk * state_chunk, count = std::min(state_chunk, run.count - begin);
      load_all(run.first + begin, count);
      mark_states(before_ + chunk * matrix_, count);
      for (int64_t part = (count - 1) / state_tokens * state_tokens; part >= 0;
           part -= state_tokens)
        part_back(run.first + begin, part, std::min(state_tokens, count - part));
    }
    d_numbers[head_] = d_decay_;
    d_numbers[shape_.num_heads() + head_] = d_step_bias_;
    d_numbers[2 * shape_.num_heads() + head_] = d_skip_;
  }

 private:
  /// And what writes and what reads, padded.
  void load_all(int64_t first, int64_t count) {
    this->load(first, count);
    for (int64_t t = 0; t < count; ++t) {
      const Token of = this->token(first, t);
      std::copy_n(of.writes, shape_.state_size, writes(t));
      std::copy_n(of.reads, shape_.state_size, writes(t) + stride_);
    }
  }
  float* writes(int64_t t) const { return keys_ + t * 2 * stride_; }
  ToNext to_next(int64_t t) const {
    return {writes(t), Base::value_ + t * padded_, Base::fade_[t], Base::step_[t]};
  }

  void keep_states(const MemoryRun& run) {
    std::fill(before_, before_ + matrix_, 0.0f);
    for (int64_t chunk = 0; (chunk + 1) * state_chunk < run.count; ++chunk) {
      load_all(run.first + chunk * state_chunk, state_chunk);
      float* next = before_ + (chunk + 1) * matrix_;
      std::copy_n(before_ + chunk * matrix_, matrix_, next);
      for (int64_t t = 0; t < state_chunk; ++t)
        to_next(t)(next, next, shape_.head_size, stride_);
    }
  }

  /// The states before some of the loaded tokens, state_tokens apart, by that before the first.
  void mark_states(const float* before, int64_t count) {
    std::copy_n(before, matrix_, marks_);
    for (int64_t t = 0; t + state_tokens < count; t += state_tokens) {
      float* next = marks_ + (t / state_tokens + 1) * matrix_;
      std::copy_n(next - matrix_, matrix_, next);
      for (int64_t i = 0; i < state_tokens; ++i)
        to_next(t + i)(next, next, shape_.head_size, stride_);
    }
  }

  void part_back(int64_t first, int64_t begin, int64_t count) {
    std::copy_n(marks_ + begin / state_tokens * matrix_, matrix_, states_);
    for (int64_t i = 0; i + 1 < count; ++i)
      to_next(begin + i)(states_ + i * matrix_, states_ + (i + 1) * matrix_, shape_.head_size,
                         stride_);
    for (int64_t i = count - 1; i >= 0; --i)
      token_back(first, begin + i);
  }

  void token_back(int64_t first, int64_t t) {
    std::copy_n(this->outputs(first + t), shape_.head_size, d_read_);
    std::fill(put_lanes_, put_lanes_ + shape_.head_size * vector_lanes, 0.0f);
    float fade_lanes[vector_lanes] = {};
    for (int64_t s = 0; s < stride_; s += vector_lanes)
      columns_back(first, t, s, fade_lanes);
    float d_fade = 0.0f;
    for (int64_t lane = 0; lane < vector_lanes; ++lane)
      d_fade += fade_lanes[lane];
    for (int64_t k = 0; k < shape_.head_size; ++k) {
      const float* lanes = put_lanes_ + k * vector_lanes;
      float sum = 0.0f;
      for (int64_t lane = 0; lane < vector_lanes; ++lane)
        sum += lanes[lane];
      d_put_[k] = sum;
    }
    numbers_back(first + t, this->token(first, t), d_fade);
  }

  /// Of channels [s, s + vector_lanes) that write and that read.
  void columns_back(int64_t first, int64_t t, int64_t s, float* fade_lanes) {
    Lanes writes, reads, of_writes = {}, of_reads = {}, of_fade = {};
    load_lanes(writes, this->writes(t) + s);
    load_lanes(reads, this->writes(t) + stride_ + s);
    const float* value = Base::value_ + t * padded_;
    const float fade = Base::fade_[t], step = Base::step_[t];
    for (int64_t k = 0; k < shape_.head_size; ++k) {
      const int64_t at = s * shape_.head_size + k * vector_lanes;
      float* d = d_state_ + at;
      float* lanes = put_lanes_ + k * vector_lanes;
      Lanes now, old, of_put;
      load_lanes(now, d);
      load_lanes(old, states_ + t % state_tokens * matrix_ + at);
      load_lanes(of_put, lanes);
      const float put = step * value[k], d_out = d_read_[k];
      now += reads * d_out;
      of_writes += put * now;
      of_reads += d_out * (fade * old + put * writes);
      of_fade += now * old;
      of_put += now * writes;
      now *= fade;
      std::memcpy(lanes, &of_put, sizeof of_put);
      std::memcpy(d, &now, sizeof now);
    }
    float* d_writes = d_keys_ + (first + t) * 2 * shape_.keys() + s;
    float* d_reads = d_writes + shape_.keys();
    const int64_t count = std::min(vector_lanes, shape_.state_size - s);
    for (int64_t lane = 0; lane < count; ++lane) {
      d_writes[lane] = adds_ ? d_writes[lane] + of_writes[lane] : of_writes[lane];
      d_reads[lane] = adds_ ? d_reads[lane] + of_reads[lane] : of_reads[lane];
    }
    for (int64_t lane = 0; lane < vector_lanes; ++lane)
      fade_lanes[lane] += of_fade[lane];
  }

  void numbers_back(int64_t token, const Token& of, float d_fade) {
    const float d_rate =
        d_fade * of.fade * of.step;  // of the logarithm of its negative: times rate
    float d_step = dot(d_put_, of.value, padded_) + d_fade * of.fade * Base::rate_;
    const float input = this->step_input(token), plain = softplus(input);
    if (plain < shape_.least_step || plain > shape_.most_step) d_step = 0.0f;
    const float d_input = d_step * sigmoid(input);
    d_decay_ += d_rate * Base::rate_;
    d_step_bias_ += d_input;
    d_skip_ += dot(d_read_, of.value, padded_);
    back_.d_x[token * shape_.inputs() + this->step_place()] = round_to<T>(d_input);
    float* d_value = this->outputs(token);
    const float skip = args_.skip[head_];
    for (int64_t k = 0; k < shape_.head_size; ++k)
      d_value[k] = of.step * d_put_[k] + skip * d_read_[k];
  }

  const StateSpaceBackward<T>& back_;
  float* d_keys_;
  bool adds_;
  int64_t stride_;  ///< padded S
  int64_t matrix_;
  float* before_;  ///< [chunks], states as ToNext has them
  float* marks_;   ///< [tokens / state_tokens]
  float* states_;  ///< [state_tokens]: before each
  float* d_state_;
  float* keys_;  ///< [tokens, 2, padded S]
  float* d_read_;
  float* d_put_;
  float* put_lanes_;  ///< [K, lanes]
  float d_decay_ = 0, d_step_bias_ = 0, d_skip_ = 0;
};

/// What heads have read is replaced by the gradients of their values.
template <class T>
void heads_back(const StateSpaceBackward<T>& args, int64_t num_rows) {
  const StateShape& shape = args.shape;
  const int64_t teams = shape.teams(), all = shape.num_groups * teams;
  int64_t longest = 0;
  for (const MemoryRun& run : args.runs)
    longest = std::max(longest, run.count);
  launch(std::ssize(args.runs) * all, 1, [&](int64_t first, int64_t last) {
    Workspace work(state_space_scratch(shape, longest));
    for (int64_t i = first; i < last; ++i) {
      const auto i_run = static_cast<std::size_t>(i / all);
      const MemoryRun& run = args.runs[i_run];
      if (run.count == 0) continue;
      const int64_t group = i % all / teams, team = i % teams;
      const int64_t heads = shape.heads_per_group;
      float* d_keys = args.d_keys + team * num_rows * 2 * shape.keys();
      float* d_numbers = args.d_numbers + static_cast<int64_t>(i_run) * 3 * shape.num_heads();
      const int64_t begin = heads * team / teams, end = heads * (team + 1) / teams;
      for (int64_t head = begin; head < end; ++head) {
        work.start_over();
        BackwardHead<T>(args, group * heads + head, run.count, d_keys, head > begin, work)
            .go_back(run, d_numbers);
      }
    }
  });
}

template <class T>
class BackwardConvolution : Convolution<T> {
  using Base = Convolution<T>;
  using Base::args_, Base::shape_, Base::first_, Base::width_, Base::history_;

 public:
  BackwardConvolution(const StateSpaceBackward<T>& args, int64_t num_rows, int64_t block)
      : Base(args, block),
        back_(args),
        num_rows_(num_rows),
        d_mixed_((state_chunk + history_) * channels_together),
        sums_((shape_.taps + 1) * channels_together) {
    std::fill(sum(0), sum(shape_.taps + 1), 0.0f);
  }

  void go_back(const MemoryRun& run) {
    std::fill(d_mixed(0), d_mixed(history_), 0.0f);
    for (int64_t chunk = (run.count - 1) / state_chunk; chunk >= 0; --chunk) {
      const int64_t begin = chunk * state_chunk, count = std::min(state_chunk, run.count - begin);
      // What the later chunk's first tokens say of inputs before them.
      std::copy_backward(d_mixed(0), d_mixed(history_), d_mixed(count + history_));
      this->load(run, begin, count);
      for (int64_t t = 0; t < count; ++t)
        load_gradient(run.first + begin + t, t);
      add_sums(count);
      for (int64_t t = 0; t < count; ++t)
        to_inputs(run.first + begin + t, t);
    }
  }

  /// After all runs.
  void finish() {
    for (int64_t c = 0; c < width_; ++c) {
      for (int64_t tap = 0; tap < shape_.taps; ++tap)
        back_.d_taps[(first_ + c) * shape_.taps + tap] = sum(tap)[c];
      back_.d_taps_bias[first_ + c] = sum(shape_.taps)[c];
    }
  }

 private:
  float* d_mixed(int64_t t) const { return d_mixed_.data() + t * channels_together; }
  float* sum(int64_t tap) const { return sums_.data() + tap * channels_together; }

  /// Of what SiLU gave: values' lie where heads have read, those of groups are of several teams.
  void load_gradient(int64_t token, int64_t t) const {
    const float* before = this->mixed(t);
    float* d = d_mixed(t);
    const int64_t values = std::clamp<int64_t>(shape_.outputs() - first_, 0, width_);
    std::copy_n(back_.read + token * shape_.outputs() + first_, values, d);
    std::fill(d + values, d + width_, 0.0f);
    for (int64_t team = 0; team < shape_.teams(); ++team) {
      const float* of_team = back_.d_keys + (team * num_rows_ + token) * 2 * shape_.keys();
      for (int64_t c = values; c < width_; ++c)
        d[c] += of_team[first_ + c - shape_.outputs()];
    }
    for (int64_t c = 0; c < width_; ++c)
      d[c] *= silu_slope(before[c]);
  }

  void add_sums(int64_t count) const {
    float* of_bias = sum(shape_.taps);
    for (int64_t t = 0; t < count; ++t) {
      const float* d = d_mixed(t);
      for (int64_t tap = 0; tap < shape_.taps; ++tap) {
        const float* raw = this->raw(t + tap);
        float* of_tap = sum(tap);
#pragma GCC ivdep
        for (int64_t c = 0; c < width_; ++c)
          of_tap[c] += d[c] * raw[c];
      }
#pragma GCC ivdep
      for (int64_t c = 0; c < width_; ++c)
        of_bias[c] += d[c];
    }
  }

  void to_inputs(int64_t token, int64_t t) const {
    float d_raw[channels_together] = {};
    for (int64_t tap = 0; tap < shape_.taps; ++tap) {
      const float* d = d_mixed(t + history_ - tap);
      const float* of_tap = this->taps(tap);
      for (int64_t c = 0; c < width_; ++c)
        d_raw[c] += of_tap[c] * d[c];
    }
    T* d_x = back_.d_x + token * shape_.inputs() + shape_.outputs() + first_;
    for (int64_t c = 0; c < width_; ++c)
      d_x[c] = round_to<T>(d_raw[c]);
  }

  const StateSpaceBackward<T>& back_;
  int64_t num_rows_;
  Scratch<float> d_mixed_;  ///< [tokens + taps - 1, together]: the last ones of the chunk behind
  Scratch<float> sums_;     ///< [taps + 1, together]: of taps and of their bias
};

template <class T>
void convolution_back(const StateSpaceBackward<T>& args, int64_t num_rows) {
  launch(num_blocks(args.shape), 1, [&args, num_rows](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      BackwardConvolution<T> back(args, num_rows, block);
      for (const MemoryRun& run : args.runs)
        if (run.count > 0) back.go_back(run);
      back.finish();
    }
  });
}

}  // namespace
}  // namespace state

template <class T>
void state_space_backward(const StateSpaceBackward<T>& args, std::int64_t num_rows) {
  state::convolve<T>(args);
  state::read_states<T>(args);
  state::norms_back(args);
  state::heads_back(args, num_rows);
  state::convolution_back(args, num_rows);
}

template void state_space_backward<float>(const StateSpaceBackward<float>&, std::int64_t);
template void state_space_backward<bf16>(const StateSpaceBackward<bf16>&, std::int64_t);

}  // namespace finetune::kernels
