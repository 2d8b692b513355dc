#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the deck does not allow in data.

#include "data/text/format.hpp"
#include "data/text/source.hpp"
#include "data/tokens/detail/options.hpp"
#include "data/tokens/report.hpp"

namespace finetune::data {

/// Of a report of newly tokenised samples: overlong or masked ones where `options` refuse them,
/// and nothing left at all. Throws: ErrorKind::input naming the first such sample.
void require_usable(const SampleSource& source, Layout layout, const DataReport& report,
                    const DatasetOptions& options);

/// Of any report: more of something than `options.limits` allow. Throws: ErrorKind::input naming
/// the share, the limit and the first such sample.
void require_limits(const SampleSource& source, const DataReport& report,
                    const DatasetOptions& options);

/// Throws: ErrorKind::input.
[[noreturn]] void fail_nothing_left(const DataReport& report, const DatasetOptions& options);

}  // namespace finetune::data
