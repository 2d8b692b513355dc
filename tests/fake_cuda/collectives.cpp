// SPDX-License-Identifier: Apache-2.0
#include "fake_cuda/collectives.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "fake_cuda/fake.hpp"

namespace finetune::fake {
namespace {

MPI_Comm comm = MPI_COMM_NULL;

/// Messages on their way, and the memory that they leave from and come to.
class Messages {
 public:
  Messages(const Ranks& ranks, const IsGivenUp& is_given_up)
      : ranks_(ranks), is_given_up_(is_given_up) {}
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() {
    for (MPI_Request& request : receipts_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    bool all_left = true;
    for (MPI_Request& request : sendings_) {
      if (request == MPI_REQUEST_NULL) continue;
      all_left = false;
      MPI_Request_free(&request);
    }
    // Somebody may still fetch it.
    if (!all_left) new auto(std::move(memory_));
  }

  /// Memory that lives as long as messages need it.
  std::byte* make(std::size_t bytes) {
    return memory_.emplace_back(std::make_unique<std::byte[]>(bytes)).get();
  }
  void send(int to, const std::byte* data, std::int64_t bytes, int tag) {
    MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, in_world(to), ranks_.first_tag + tag, comm,
              &sendings_.emplace_back());
  }
  void receive(int from, std::byte* data, std::int64_t bytes, int tag) {
    MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, in_world(from), ranks_.first_tag + tag, comm,
              &receipts_.emplace_back());
  }
  /// False if it was given up.
  bool finish() {
    return finish([&] { return all_done(receipts_) && all_done(sendings_); });
  }
  bool finish_receipts() {
    return finish([&] { return all_done(receipts_); });
  }

 private:
  static bool all_done(std::vector<MPI_Request>& requests) {
    int done = 1;
    if (!requests.empty())
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
  }
  template <typename Condition>
  bool finish(const Condition& is_done) {
    while (!is_done()) {
      if (is_given_up_()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
  }

  int in_world(int rank) const {
    return rank == MPI_ANY_SOURCE ? rank : ranks_.in_world[static_cast<std::size_t>(rank)];
  }

  const Ranks& ranks_;
  const IsGivenUp& is_given_up_;
  std::vector<MPI_Request> sendings_, receipts_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

// Of a communicator.
constexpr int header_tag = 0, data_tag = 1, meeting_tag = 2, list_tag = 3, size_tag = 4,
              num_tags = 5;

template <typename F>
void for_others(const Ranks& ranks, const F& f) {
  for (int rank = 0; rank < static_cast<int>(ranks.in_world.size()); ++rank)
    if (rank != ranks.rank) f(rank);
}

/// Adds `count` elements at `terms` to those at `sums`.
void add(core::DType dtype, const std::byte* terms, std::byte* sums, std::int64_t count) {
  const auto each = [&]<typename T>(const auto& sum_of) {
    for (std::int64_t i = 0; i < count; ++i) {
      T term{}, sum{};
      std::memcpy(&term, terms + i * std::int64_t{sizeof(T)}, sizeof(T));
      std::memcpy(&sum, sums + i * std::int64_t{sizeof(T)}, sizeof(T));
      sum = sum_of(sum, term);
      std::memcpy(sums + i * std::int64_t{sizeof(T)}, &sum, sizeof(T));
    }
  };
  using Bits = std::uint16_t;
  if (dtype == core::DType::f32) {
    each.operator()<float>([](float a, float b) { return a + b; });
  } else if (dtype == core::DType::i64) {
    each.operator()<std::int64_t>([](std::int64_t a, std::int64_t b) { return a + b; });
  } else if (dtype == core::DType::bf16) {
    each.operator()<Bits>([](Bits a, Bits b) {
      return core::float_to_bf16(core::bf16_to_float(a) + core::bf16_to_float(b));
    });
  } else {
    each.operator()<Bits>([](Bits a, Bits b) {
      return core::float_to_f16(core::f16_to_float(a) + core::f16_to_float(b));
    });
  }
}

using Header = std::array<std::int64_t, 4>;

/// What one rank does and another does not.
std::string compare(const Collective& own, const Ranks& ranks, Messages& messages) {
  const Header header = {static_cast<std::int64_t>(own.kind), own.count,
                         static_cast<std::int64_t>(own.dtype), own.sequence};
  auto* const sent = messages.make(sizeof(Header));
  std::memcpy(sent, header.data(), sizeof(Header));
  std::vector<std::byte*> received(ranks.in_world.size());
  for_others(ranks, [&](int rank) {
    received[static_cast<std::size_t>(rank)] = messages.make(sizeof(Header));
    messages.receive(rank, received[static_cast<std::size_t>(rank)], sizeof(Header), header_tag);
    messages.send(rank, sent, sizeof(Header), header_tag);
  });
  if (!messages.finish()) return {};
  std::string problem;
  for_others(ranks, [&](int rank) {
    Header other{};
    std::memcpy(other.data(), received[static_cast<std::size_t>(rank)], sizeof(Header));
    if (other != header)
      problem =
          std::string(own.name()) + " meets another collective on rank " + std::to_string(rank);
  });
  return problem;
}

/// Sends each rank its part of `bytes`, and receives one from it.
void swap_parts(const Ranks& ranks, Messages& messages, const std::byte* send, std::int64_t bytes,
                const std::function<std::int64_t(int)>& part_for,
                const std::function<std::byte*(int)>& place_of) {
  for_others(ranks, [&](int rank) {
    messages.receive(rank, place_of(rank), bytes, data_tag);
    // A copy, which may be fetched after the collective was given up.
    std::byte* const part = messages.make(static_cast<std::size_t>(bytes));
    std::memcpy(part, send + part_for(rank) * bytes, static_cast<std::size_t>(bytes));
    messages.send(rank, part, bytes, data_tag);
  });
}

/// The sum of the ranks' parts, in the order of ranks.
bool sum_up(const Collective& what, const Ranks& ranks, Messages& messages, bool in_parts) {
  const std::int64_t bytes = what.count * core::size_bytes(what.dtype);
  const auto* send = static_cast<const std::byte*>(what.send);
  std::vector<const std::byte*> terms(ranks.in_world.size());
  swap_parts(
      ranks, messages, send, bytes, [&](int to) { return in_parts ? to : 0; },
      [&](int from) {
        auto* const place = messages.make(static_cast<std::size_t>(bytes));
        terms[static_cast<std::size_t>(from)] = place;
        return place;
      });
  if (!messages.finish()) return false;
  terms[static_cast<std::size_t>(ranks.rank)] = send + (in_parts ? ranks.rank * bytes : 0);
  auto* const sums = messages.make(static_cast<std::size_t>(bytes));
  std::memcpy(sums, terms.front(), static_cast<std::size_t>(bytes));
  for (std::size_t rank = 1; rank < terms.size(); ++rank)
    add(what.dtype, terms[rank], sums, what.count);
  std::memcpy(what.receive, sums, static_cast<std::size_t>(bytes));
  return true;
}

void gather(const Collective& what, const Ranks& ranks, Messages& messages) {
  const std::int64_t bytes = what.count * core::size_bytes(what.dtype);
  auto* const whole = static_cast<std::byte*>(what.receive);
  std::byte* const own = whole + ranks.rank * bytes;
  if (own != what.send) std::memcpy(own, what.send, static_cast<std::size_t>(bytes));
  swap_parts(
      ranks, messages, own, bytes, [](int) { return 0; },
      [&](int from) { return whole + from * bytes; });
  messages.finish();
}

/// Each with its size, which the other rank has to expect.
std::string send_and_receive(const Collective& what, Messages& messages) {
  std::vector<std::pair<const Message*, std::byte*>> sizes;
  for (const Message& message : what.messages) {
    const auto bytes = static_cast<std::size_t>(message.bytes);
    if (message.way == Message::Way::in) {
      sizes.emplace_back(&message, messages.make(sizeof(message.bytes)));
      messages.receive(message.peer, sizes.back().second, sizeof(message.bytes), size_tag);
      continue;
    }
    // Copies, which may be fetched after the messages were given up.
    std::byte* const size = messages.make(sizeof(message.bytes));
    std::memcpy(size, &message.bytes, sizeof(message.bytes));
    messages.send(message.peer, size, sizeof(message.bytes), size_tag);
    std::byte* const data = messages.make(bytes);
    std::memcpy(data, message.memory, bytes);
    messages.send(message.peer, data, message.bytes, data_tag);
  }
  if (!messages.finish_receipts()) return {};
  for (const auto& [message, size] : sizes) {
    std::int64_t sent = 0;
    std::memcpy(&sent, size, sizeof(sent));
    if (sent != message->bytes)
      return "a rank sends " + std::to_string(sent) + " bytes where another receives " +
             std::to_string(message->bytes);
    messages.receive(message->peer, static_cast<std::byte*>(message->memory), message->bytes,
                     data_tag);
  }
  messages.finish();
  return {};
}

}  // namespace

MPI_Comm messages() {
  return comm;
}
void connect(const std::vector<int>& ranks) {
  if (comm != MPI_COMM_NULL) return;
  if (ranks.empty()) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return;
  }
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some);
  MPI_Comm_create_group(MPI_COMM_WORLD, some, ranks.front(), &comm);
  MPI_Group_free(&some);
  MPI_Group_free(&all);
}
void disconnect() {
  if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
}

std::int64_t Collective::sent_bytes(int num_ranks) const {
  return count * core::size_bytes(dtype) * (kind == Kind::reduce_scatter ? num_ranks : 1);
}
std::int64_t Collective::received_bytes(int num_ranks) const {
  return count * core::size_bytes(dtype) * (kind == Kind::all_gather ? num_ranks : 1);
}
const char* Collective::name() const {
  return kind == Kind::all_gather       ? "all_gather"
         : kind == Kind::reduce_scatter ? "reduce_scatter"
         : kind == Kind::all_reduce     ? "all_reduce"
                                        : "messages";
}

std::string run(const Collective& collective, const Ranks& ranks, const IsGivenUp& is_given_up) {
  Messages all(ranks, is_given_up);
  if (collective.kind == Kind::messages) return send_and_receive(collective, all);
  const std::string problem = compare(collective, ranks, all);
  if (!problem.empty() || is_given_up()) return problem;
  if (collective.count == 0) return {};
  Messages parts(ranks, is_given_up);
  if (collective.kind == Kind::all_gather) {
    gather(collective, ranks, parts);
  } else {
    sum_up(collective, ranks, parts, collective.kind == Kind::reduce_scatter);
  }
  return {};
}

bool meet(int root, int number, int rank, int size, int device, Ranks& ranks, std::string& problem,
          const IsGivenUp& is_given_up) {
  int own = 0, world_size = 0;
  MPI_Comm_rank(comm, &own);
  MPI_Comm_size(comm, &world_size);
  struct Entry {
    int rank, in_world, device;
    std::array<char, 64> host;
  };
  Entry entry{.rank = rank, .in_world = own, .device = device, .host = {}};
  ::gethostname(entry.host.data(), entry.host.size() - 1);
  // Until all is known, ranks are those of the world.
  Ranks world{.in_world = {}, .rank = own, .first_tag = (number * world_size + root) * num_tags};
  for (int i = 0; i < world_size; ++i)
    world.in_world.push_back(i);
  Messages messages(world, is_given_up);
  const auto bytes = static_cast<std::size_t>(size) * sizeof(Entry);
  auto* const list = messages.make(bytes);
  auto* const sent = messages.make(sizeof(Entry));
  std::memcpy(sent, &entry, sizeof(Entry));
  messages.send(root, sent, sizeof(Entry), meeting_tag);
  if (own == root) {
    for (int i = 0; i < size; ++i)
      messages.receive(MPI_ANY_SOURCE, list + static_cast<std::size_t>(i) * sizeof(Entry),
                       sizeof(Entry), meeting_tag);
    if (!messages.finish()) return false;
    for (int i = 0; i < size; ++i) {
      std::memcpy(&entry, list + static_cast<std::size_t>(i) * sizeof(Entry), sizeof(Entry));
      if (entry.in_world != own)
        messages.send(entry.in_world, list, static_cast<std::int64_t>(bytes), list_tag);
    }
  } else {
    messages.receive(root, list, static_cast<std::int64_t>(bytes), list_tag);
  }
  if (!messages.finish()) return false;
  std::vector<Entry> entries(static_cast<std::size_t>(size));
  std::memcpy(entries.data(), list, bytes);
  ranks = {
      .in_world = std::vector<int>(entries.size(), -1), .rank = rank, .first_tag = world.first_tag};
  for (const Entry& each : entries) {
    ranks.in_world[static_cast<std::size_t>(each.rank)] = each.in_world;
    for (const Entry& other : entries)
      if (other.rank < each.rank && other.device == each.device && other.host == each.host)
        problem = "Duplicate GPU detected";
  }
  return true;
}

}  // namespace finetune::fake
