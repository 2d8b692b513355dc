#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the flight records of a run say: who is where, and who keeps whom waiting.

#include <filesystem>
#include <string>
#include <vector>

#include "comm/watch/hang.hpp"

namespace finetune::comm {

/// Of all ranks, as FlightRecorder wrote it.
struct FlightRecords {
  std::vector<RankState> ranks;  ///< finished: nothing is known
  std::vector<std::string> hosts;
  std::vector<std::string> reasons;  ///< why each was written; empty: there is none
  std::vector<double> written_at_s;  ///< each record, seconds since 1970; 0: there is none
  std::vector<int> missing;          ///< ranks that nothing is known of
  bool are_of_earlier_start = false;
};

/// Reads `folder`, or its subfolder flight, or if that has none flight.before. Of each rank it
/// takes what is newest: its own record, or what another had heard of it. Throws: ErrorKind::input
/// if there is no record, or one cannot be read.
FlightRecords read_flight_records(const std::filesystem::path& folder);

/// Two lines: who is late, or what ended the job; and who waits, or where a rank was, with the
/// ranks that nothing is known of.
std::string describe(const FlightRecords& records);

}  // namespace finetune::comm
