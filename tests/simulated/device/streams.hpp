#pragma once
// SPDX-License-Identifier: Apache-2.0
// Streams of the simulated device as the program uses them, and the waits of its host.

#include <string>
#include <string_view>

#include "simulated/device/order.hpp"

namespace finetune::simulated {

/// The stream that this thread's operations go to.
Stream current_stream();
/// Returns the one before.
Stream exchange_stream(Stream stream);
Stream new_stream();

/// The host waits for an event, and what it may touch from now on is given back to it. Counted
/// under `name`.
void host_waits(const std::string& name, const Clock& event);
/// The same for everything that the stream holds.
void host_waits_for(const std::string& name, Stream stream);

/// Whether this wait is to be left out, to see that somebody finds it: FINETUNE_SIMULATED_DROP is
/// a list of kinds, "KIND,KIND#N,...": all waits of a kind, or its N-th alone, counted from 1.
/// Kinds: "event" (the host waits for an event), "stream" (for a stream), "block" (a stream for an
/// event), and "COLLECTIVE.follow", "COLLECTIVE.wait" of all_gather, reduce_scatter, all_reduce and
/// all_to_all: that a collective comes after what is computed, and what is computed after it.
bool is_dropped(std::string_view kind);

}  // namespace finetune::simulated
