// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's JSON: alone, or named by the configuration of a trainer.
#include <array>

#include "migrate/detail/source.hpp"
#include "migrate/detail/sources/notes.hpp"

namespace finetune::migrate {
namespace {

constexpr auto deepspeed_marks =
    std::to_array<std::string_view>({"zero_optimization", "train_micro_batch_size_per_gpu",
                                     "train_batch_size", "zero_allow_untested_optimizer"});

constexpr auto deepspeed_rows = std::to_array<Row>({
    {"train_batch_size", Kind::fact, "global_batch"},
    {"train_micro_batch_size_per_gpu", Kind::fact, "micro_batch"},
    {"gradient_accumulation_steps", Kind::fact, "accumulation"},
    {"gradient_clipping", Kind::key, "optimizer.max_grad_norm"},
    {"bf16.enabled", Kind::fact, "bf16"},
    {"bfloat16.enabled", Kind::fact, "bf16"},
    {"bf16", Kind::needless, "", "sums of gradients are fp32"},
    {"fp16.enabled", Kind::fact, "fp16"},
    {"fp16", Kind::needless, "", "16-mixed scales its loss by itself"},
    {"amp", Kind::stops, "precision.mode=bf16-mixed", "precision.mode is the number format"},
    {"zero_optimization.stage", Kind::fact, "zero_stage"},
    {"zero_optimization.offload_optimizer.device", Kind::fact, "offload_device"},
    {"zero_optimization.offload_optimizer", Kind::needless, "",
     "optimizer.offload pins its memory"},
    {"zero_optimization.offload_param.device", Kind::fact, "offload_param_device"},
    {"zero_optimization.offload_param", Kind::needless, "", "optimizer.offload pins its memory"},
    {"zero_optimization", Kind::needless, "", notes::own_sharding},
    {"zero_allow_untested_optimizer", Kind::needless, "", notes::own_sharding},
    {"zero_force_ds_cpu_optimizer", Kind::needless, "", notes::own_sharding},
    {"communication_data_type", Kind::needless, "", "parallel.reduce_dtype is that of gradients"},
    {"tensor_parallel.autotp_size", Kind::fact, "tp"},
    {"tensor_parallel", Kind::needless, "", "parallel.tp shares every matrix"},
    {"activation_checkpointing", Kind::needless, "", "train.activation_checkpointing recomputes"},
    {"optimizer.type", Kind::word, "optimizer.name"},
    {"optimizer.params.lr", Kind::key, "optimizer.lr"},
    {"optimizer.params.betas", Kind::fact, "betas"},
    {"optimizer.params.eps", Kind::key, "optimizer.eps"},
    {"optimizer.params.weight_decay", Kind::key, "optimizer.weight_decay"},
    {"optimizer.params", Kind::needless, "", "AdamW is decoupled"},
    {"scheduler.type", Kind::word, "optimizer.schedule"},
    {"scheduler.params.warmup_num_steps", Kind::fact, "warmup_steps"},
    {"scheduler.params.warmup_type", Kind::fact, "warmup_type"},
    {"scheduler.params.warmup_min_lr", Kind::differs, "", "warm-up is from 0"},
    {"scheduler.params.total_num_steps", Kind::fact, "max_steps"},
    {"scheduler.params.warmup_max_lr", Kind::key, "optimizer.lr"},
    {"scheduler.params.cos_min_ratio", Kind::key, "optimizer.min_lr_ratio"},
    {"scheduler.params", Kind::needless, "", "optimizer.warmup_steps and min_lr_ratio say it"},
    {"steps_per_print", Kind::needless, "", notes::no_tracker},
    {"wall_clock_breakdown", Kind::needless, "", notes::no_tracker},
    {"tensorboard", Kind::needless, "", notes::no_tracker},
    {"wandb", Kind::needless, "", notes::no_tracker},
    {"csv_monitor", Kind::needless, "", notes::no_tracker},
    {"comms_config", Kind::needless, "", notes::no_tracker},
    {"comms_logger", Kind::needless, "", notes::no_tracker},
    {"monitor_config", Kind::needless, "", notes::no_tracker},
    {"flops_profiler", Kind::needless, "", "[profile] records steps"},
    {"memory_breakdown", Kind::needless, "", "[profile] records steps"},
    {"dump_state", Kind::needless, "", notes::no_tracker},
    {"prescale_gradients", Kind::needless, "", "the loss is that of all tokens of a step"},
    {"gradient_predivide_factor", Kind::needless, "", "the loss is that of all tokens of a step"},
    {"checkpoint", Kind::needless, "", "[checkpoint] says when to save"},
    {"aio", Kind::differs, "", "nothing is kept on disks: optimizer.offload keeps it in memory"},
    {"compile", Kind::needless, "", notes::no_compiler},
    {"fp8", Kind::differs, "", "precision.mode = \"fp8-mixed\" is the key for it"},
    {"elasticity", Kind::needless, "", "a restart may have other ranks"},
    {"sparse_gradients", Kind::needless, "", notes::own_sharding},
    {"pipeline", Kind::stops, "parallel.sharding=FULL_SHARD", "layers are not dealt out"},
    {"compression_training", Kind::stops, "adapter.name=qlora",
     "weights are not pruned in training"},
});

constexpr auto deepspeed_defaults = std::to_array<Default>({
    {"optimizer.schedule", R"("constant")"},
    {"optimizer.beta2", "0.999"},
    {"optimizer.max_grad_norm", "0.0"},
});

}  // namespace

const Source deepspeed = {"deepspeed", "DeepSpeed",        deepspeed_marks, deepspeed_rows,
                          {},          deepspeed_defaults, nullptr};

}  // namespace finetune::migrate
