// SPDX-License-Identifier: Apache-2.0
// By hand (collectives.sh): times collectives of all ranks in one level and in two, in turns, and
// counts what they send from node to node.
//   collectives MEBIBYTES ROUNDS
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "comm/environment.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"

namespace {

using finetune::comm::MpiGroup;
using finetune::comm::Reduce;
using finetune::core::DType;
using Levels = MpiGroup::Options::Levels;

struct Job {
  const char* name;
  DType dtype;
  void (*start)(MpiGroup& group, DType dtype, std::byte* whole, std::byte* part,
                std::int64_t count);
};

constexpr Job jobs[] = {
    {"all_gather bf16", DType::bf16,
     [](MpiGroup& group, DType dtype, std::byte* whole, std::byte* part, std::int64_t count) {
       group.all_gather(dtype, part, whole, count);
     }},
    {"reduce_scatter fp32", DType::f32,
     [](MpiGroup& group, DType dtype, std::byte* whole, std::byte* part, std::int64_t count) {
       group.reduce_scatter(dtype, whole, part, count);
     }},
    {"reduce_scatter bf16", DType::bf16,
     [](MpiGroup& group, DType dtype, std::byte* whole, std::byte* part, std::int64_t count) {
       group.reduce_scatter(dtype, whole, part, count);
     }},
    {"reduce_scatter int64", DType::i64,
     [](MpiGroup& group, DType dtype, std::byte* whole, std::byte* part, std::int64_t count) {
       group.reduce_scatter(dtype, whole, part, count);
     }},
    {"all_reduce fp32", DType::f32,
     [](MpiGroup& group, DType dtype, std::byte* whole, std::byte*, std::int64_t count) {
       group.all_reduce(dtype, whole, count * group.size());
     }},
};

struct Result {
  std::vector<double> ms;
  double mib = 0;  ///< between nodes
};

void measure(const finetune::comm::Communicator& world, MpiGroup& group, const Job& job,
             std::int64_t mebibytes, Result& result) {
  const std::int64_t element = finetune::core::size_bytes(job.dtype);
  const std::int64_t count = (mebibytes << 20) / element / world.size();
  std::vector<std::byte> whole(static_cast<std::size_t>(count * world.size() * element));
  std::vector<std::byte> part(static_cast<std::size_t>(count * element));
  const std::int64_t before = group.traffic().to_other_nodes_bytes;
  world.barrier();
  const finetune::core::Stopwatch watch;
  job.start(group, job.dtype, whole.data(), part.data(), count);
  group.synchronize();
  result.ms.push_back(1e3 * world.all_reduce(watch.seconds(), Reduce::max));
  const std::int64_t sent = group.traffic().to_other_nodes_bytes - before;
  result.mib = static_cast<double>(world.all_reduce(sent, Reduce::sum)) / 0x1p20;
}

std::string text_of(Result& result) {
  std::sort(result.ms.begin(), result.ms.end());
  return fmt::format("{:.1f} MiB, {:.1f} ms ({:.1f} to {:.1f})", result.mib,
                     result.ms[result.ms.size() / 2], result.ms.front(), result.ms.back());
}

}  // namespace

int main(int argc, char** argv) {
  const finetune::comm::Environment environment(argc, argv);
  const auto& world = environment.world();
  const std::int64_t mebibytes = argc > 1 ? std::atoll(argv[1]) : 32;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const auto worker =
      std::make_shared<finetune::comm::Worker>(finetune::comm::Worker::Where::behind);
  MpiGroup one(world, worker, {.levels = Levels::one});
  MpiGroup two(world, worker, {.levels = Levels::two});
  MpiGroup cheapest(world, worker);
  for (const Job& job : jobs) {
    Result in_one, in_two, chosen;
    for (int round = 0; round < rounds; ++round) {
      measure(world, one, job, mebibytes, in_one);
      measure(world, two, job, mebibytes, in_two);
      measure(world, cheapest, job, mebibytes, chosen);
    }
    finetune::log::info(fmt::format("| {} | {} | {} | {} |", job.name, text_of(in_one),
                                    text_of(in_two), chosen.mib == in_one.mib ? "one" : "two"));
  }
}
