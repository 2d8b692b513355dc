#pragma once
// SPDX-License-Identifier: Apache-2.0
// The rows of metrics.jsonl as TensorBoard shows them.

#include "metrics/records.hpp"
#include "metrics/tensorboard/event.hpp"

namespace finetune::metrics {

/// Tags are group and name: train/loss, speed/mfu, time/compute_s, memory/tensors_gib,
/// validation/loss, checkpoint/write_s; answers is a text, norms_by_layer/gradient has bars.
Event event_of(const StepRecord& record);
Event event_of(const ValidationRecord& record);
Event event_of(const EvaluationRecord& record);
Event event_of(const CheckpointRecord& record);
Event event_of(const ResumeRecord& record);
Event event_of(const AnswersRecord& record);

}  // namespace finetune::metrics
