// SPDX-License-Identifier: Apache-2.0
#include "train/infer/generate.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "model/rope.hpp"
#include "model/upload.hpp"

namespace finetune::train {
namespace {

/// A text on its way.
struct Text {
  std::size_t place;  ///< in the requests
  std::unique_ptr<model::KvCache> cache;
  std::vector<std::int32_t> input;  ///< tokens that the model has not seen
  std::vector<std::int32_t> all;    ///< prompt and new tokens
  std::int64_t limit;               ///< new tokens at most
};

class Texts {
 public:
  Texts(const Engine& engine, std::span<const TextRequest> requests, const GenerateOptions& options)
      : engine_(engine), requests_(requests), options_(options), results_(requests.size()) {}

  std::vector<GeneratedText> run() {
    while (!all_are_done()) {
      begin_some();
      const std::optional<NewTokens> tokens = new_tokens();
      const at::Tensor logits = last_logits(engine_, tokens);
      if (tokens) sequence_ = tokens->sequence;
      if (tokens) take(logits.cpu().contiguous());
    }
    engine_.shards.release_all();
    return std::move(results_);
  }

 private:
  /// Of all ranks that share weights: who is done first still has shards of them.
  bool all_are_done() {
    bool stops = options_.should_stop && options_.should_stop();
    std::int64_t is_busy = !active_.empty() || next_ < requests_.size();
    const comm::Communicator& fsdp = engine_.shards.fsdp();
    if (fsdp.size() == 1) return stops || is_busy == 0;
    enum State : std::int64_t { done, busy, stopped };
    const std::int64_t state =
        fsdp.all_reduce(stops ? std::int64_t{stopped} : is_busy, comm::Reduce::max);
    return state != busy;
  }

  void begin_some() {
    std::int64_t prompt_tokens = 0;
    while (next_ < requests_.size() && std::ssize(active_) < options_.batch) {
      const TextRequest& request = requests_[next_];
      core::check(!request.prompt.empty(), "a prompt has at least one token");
      prompt_tokens += std::ssize(request.prompt);
      if (prompt_tokens > options_.prompt_tokens && prompt_tokens > std::ssize(request.prompt))
        return;
      const std::int64_t room = engine_.architecture.max_positions - std::ssize(request.prompt);
      Text text{next_++, std::make_unique<model::KvCache>(), request.prompt, request.prompt,
                std::min(request.sampling.max_tokens, room)};
      text.cache->layers.resize(static_cast<std::size_t>(engine_.architecture.num_layers));
      if (text.limit > 0)
        active_.push_back(std::move(text));
      else if (options_.on_text)
        options_.on_text(text.place, results_[text.place]);
    }
  }

  std::optional<NewTokens> new_tokens() {
    if (active_.empty()) return std::nullopt;
    std::vector<std::int64_t> ids, lengths;
    std::vector<model::KvCache*> caches;
    for (Text& text : active_) {
      ids.insert(ids.end(), text.input.begin(), text.input.end());
      lengths.push_back(std::ssize(text.input));
      caches.push_back(text.cache.get());
    }
    const at::Device device = engine_.shards.options().device;
    return NewTokens{
        model::upload(at::tensor(at::ArrayRef<std::int64_t>(ids), at::kLong), device),
        model::make_sequence(engine_.architecture, lengths, std::move(caches), sequence_, device)};
  }

  /// A token for each text; those that end make room.
  void take(const at::Tensor& logits) {
    std::size_t row = 0;
    std::erase_if(active_, [&](Text& text) {
      const float* of_text =
          logits.const_data_ptr<float>() + static_cast<std::int64_t>(row++) * logits.size(1);
      text.cache->length += std::ssize(text.input);
      return add(text, {of_text, static_cast<std::size_t>(logits.size(1))});
    });
  }

  /// Whether the text ends with that.
  bool add(Text& text, std::span<const float> logits) {
    const TextRequest& request = requests_[text.place];
    const Sampling& sampling = request.sampling;
    GeneratedText& result = results_[text.place];
    if (sampling.vocab_size > 0)
      logits = logits.first(std::min(logits.size(), static_cast<std::size_t>(sampling.vocab_size)));
    std::int32_t token = choose(logits, sampling, static_cast<std::uint64_t>(result.tokens.size()),
                                static_cast<std::uint64_t>(request.id), text.all);
    if (options_.same_on_all_ranks)
      engine_.shards.fsdp().broadcast(std::as_writable_bytes(std::span(&token, 1)));
    if (const auto& tp = engine_.shards.groups().tp)
      tp->communicator().broadcast(std::as_writable_bytes(std::span(&token, 1)));
    if (std::ranges::find(sampling.stop, token) != sampling.stop.end()) {
      result.is_complete = true;
    } else {
      result.tokens.push_back(token);
      if (options_.wants_log_probs)
        result.log_probs.push_back(static_cast<float>(log_probability(logits, token)));
      text.all.push_back(token);
      text.input = {token};
      if (options_.on_token) options_.on_token(text.place, token);
      result.is_complete = request.is_complete && request.is_complete(result.tokens);
    }
    const bool ends = result.is_complete || std::ssize(result.tokens) >= text.limit;
    if (ends && options_.on_text) options_.on_text(text.place, result);
    return ends;
  }

  const Engine& engine_;
  std::span<const TextRequest> requests_;
  const GenerateOptions& options_;
  std::vector<GeneratedText> results_;
  std::vector<Text> active_;
  std::size_t next_ = 0;
  model::Sequence sequence_;  ///< the last one, with its tables
};

}  // namespace

std::vector<GeneratedText> generate_texts(const Engine& engine,
                                          std::span<const TextRequest> requests,
                                          const GenerateOptions& options) {
  return Texts(engine, requests, options).run();
}

std::vector<std::int32_t> generate(const Engine& engine, std::span<const std::int32_t> prompt,
                                   const Sampling& sampling,
                                   const std::function<void(std::int32_t)>& on_token) {
  const TextRequest request{.prompt = {prompt.begin(), prompt.end()}, .sampling = sampling};
  GenerateOptions options{.same_on_all_ranks = true};
  if (on_token) options.on_token = [&](std::size_t, std::int32_t token) { on_token(token); };
  return generate_texts(engine, std::span(&request, 1), options).front().tokens;
}

}  // namespace finetune::train
