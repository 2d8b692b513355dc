#pragma once
// SPDX-License-Identifier: Apache-2.0
// The tables [model], [train], [metrics], [profile] and [nccl].

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/device.hpp"
#include "deck/deck.hpp"
#include "model/outputs.hpp"
#include "plan/plan.hpp"
#include "tokenizer/new_tokens.hpp"

namespace finetune::train {

/// Where a run takes the weights from that it begins with.
enum class InitialWeights { pretrained, random };
/// Over what the load of experts is counted, for the loss that balances it.
enum class RouterLoad { sample, micro_batch };
/// What is checked before the first step.
enum class PreflightLevel { off, quick, full };

/// "auto", "gpu", "cpu": what computes.
inline deck::Choices<comm::UseOfGpus> device_choices() {
  return {{"auto", comm::UseOfGpus::automatic},
          {"gpu", comm::UseOfGpus::always},
          {"cpu", comm::UseOfGpus::never}};
}

struct ModelSettings {
  std::string path;
  InitialWeights init = InitialWeights::pretrained;
  model::HeadKind problem_type = model::HeadKind::next_token;
  std::vector<std::string> labels;
  tokenizer::NewTokens new_tokens;
  std::vector<std::string> new_tokens_from;  ///< whose rows new ones begin with; none: all
  bool train_new_tokens = true;              ///< with an adapter: their rows, and no others
  double router_aux_loss_coef = -1;
  RouterLoad router_aux_loss_load = RouterLoad::sample;

  void bind(deck::Table& table);

 private:
  void bind_labels(deck::Table& table);
  void bind_new_tokens(deck::Table& table);
  void require_tokens(deck::Table& table) const;
};

struct TrainSettings {
  std::string output = "output";
  std::int64_t max_steps = -1;
  double epochs = 1;
  std::int64_t global_batch = 8;
  std::int64_t micro_batch = 1;  ///< 0: the plan's
  std::int64_t seed = 42;
  double neftune_alpha = 0;
  double ema_decay = 0;                        ///< 0: no mean of weights is kept
  std::vector<std::string> frozen, trainable;  ///< expressions for names of tensors
  std::int64_t validate_steps = 0;
  double validate_epochs = 0;
  std::int64_t early_stopping_patience = 0;
  double early_stopping_threshold = 0;
  std::int64_t stop_after_steps = 0;
  double max_seconds = 0;
  bool stop_on_divergence = false;
  plan::Determinism determinism = plan::Determinism::run;
  std::optional<plan::ActivationCheckpointing> activation_checkpointing;  ///< none: the plan's
  std::int64_t recomputed_blocks = 0;
  std::int64_t offloaded_blocks = 0;
  bool check_replicas = false;
  double hang_timeout_s = 600;
  comm::UseOfGpus device = comm::UseOfGpus::automatic;
  PreflightLevel preflight = PreflightLevel::quick;

  void bind(deck::Table& table);

  bool validates_in_training() const { return validate_steps > 0 || validate_epochs > 0; }

  /// What activation_checkpointing says; nothing is recomputed as long as "auto" is open.
  plan::ActivationCheckpointing recomputation() const;

 private:
  void bind_length(deck::Table& table);
  void bind_batch(deck::Table& table);
  void bind_stops(deck::Table& table);
  void bind_method(deck::Table& table);
  void bind_activations(deck::Table& table);
  void refuse_contradictions(deck::Table& table) const;
};

struct MetricsSettings {
  std::int64_t log_steps = 10;
  std::int64_t answers = 0;
  std::int64_t answer_tokens = 64;
  std::int64_t norms_steps = 0;
  std::int64_t noise_steps = 0;
  double devices_every_s = 1;
  bool report = true;
  bool tensorboard = true;

  /// Whether the layers' norms are due in `step`, counted from 1.
  bool wants_norms(std::int64_t step) const { return norms_steps > 0 && step % norms_steps == 0; }
  /// The same of the noise scale.
  bool wants_noise(std::int64_t step) const { return noise_steps > 0 && step % noise_steps == 0; }
  void bind(deck::Table& table);
};

/// When steps are recorded: after `wait` and `warmup` of them `active`, so often.
struct ProfileSettings {
  std::int64_t wait = 5;
  std::int64_t warmup = 3;
  std::int64_t active = 0;
  std::int64_t repeat = 1;
  std::vector<double> ranks;  ///< empty: all
  std::string dir = "profile";
  bool memory = true;
  bool stacks = false;
  std::string operators = "auto";

  std::int64_t cycle() const { return wait + warmup + active; }

  void bind(deck::Table& table);
};

/// Variables for NCCL, named as it does or in lower case without the prefix.
struct NcclTable {
  bool override_environment = false;
  bool register_buffers = false;
  std::map<std::string, std::string> variables;  ///< "NCCL_DEBUG" to "INFO"

  void bind(deck::Table& table);
};

}  // namespace finetune::train
