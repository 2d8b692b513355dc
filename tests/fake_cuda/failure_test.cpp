// SPDX-License-Identifier: Apache-2.0
// Ranks that are lost, that never come or cannot be reached; and the end of groups in every order.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <atomic>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "fake_cuda/fixture.hpp"

namespace finetune::fake_cuda::failure_test {
namespace {

using comm::Group;
using comm::Ticket;
using core::DType;
using tests::compute_stream;
using tests::DeviceArray;
using tests::world;

class Failure : public tests::OnFakeGpus {
 protected:
  std::shared_ptr<comm::DeviceStream> stream_ = make_stream();
  std::shared_ptr<Group> first_ = comm::make_nccl_group(world(), stream_);
  std::shared_ptr<Group> second_ =
      comm::make_nccl_group(world().split(0, world().rank(), "second"), stream_);
};

/// What `f` throws.
std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::environment) << error.what();
    return error.what();
  }
  return "nothing";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Failure, OfOneGroupAbortsAllAndTheFirstErrorIsThrown) {
  const DeviceArray<float> values(std::vector<float>(8, 1.0f));
  // Aborts that went one after the other would never end.
  with({.loses_a_rank_at = 0, .aborts_together = true});
  fake::Gate gate;
  gate.hold(stream_->stream());
  const Ticket lost = first_->all_reduce(DType::f32, values.get(), 8);
  gate.open();
  const std::string error = error_of([&] { first_->synchronize(); });
  EXPECT_TRUE(contains(error, "another rank was lost, says the fake")) << error;
  EXPECT_TRUE(contains(error, "\"world\", rank " + std::to_string(world().rank()))) << error;
  fake::wait_until_no_communicators();
  EXPECT_EQ(error_of([&] { (void)second_->all_reduce(DType::f32, values.get(), 8); }), error);
  EXPECT_EQ(error_of([&] { first_->wait(lost); }), error);
  EXPECT_EQ(error_of([&] { second_->synchronize(); }), error);
  second_->abandon();
  EXPECT_EQ(error_of([&] { second_->synchronize(); }), error) << "what it gives up for is no cause";
}

TEST_F(Failure, IsFoundWhileTheComputingThreadIsBlocked) {
  const DeviceArray<float> values(std::vector<float>(8, 1.0f));
  with({.loses_a_rank_at = 1});
  fake::Gate gate;
  gate.hold(stream_->stream());
  (void)second_->all_reduce(DType::f32, values.get(), 8);
  second_->wait(first_->all_reduce(DType::f32, values.get(), 8));
  gate.open();
  // As in a copy to the host, behind the collective: NCCL's error alone lets it out.
  cudaStreamSynchronize(static_cast<cudaStream_t>(compute_stream()));
  EXPECT_TRUE(contains(error_of([&] { second_->synchronize(); }), "another rank was lost"));
}

TEST_F(Failure, IsFoundWhileTheDeviceIsFull) {
  const DeviceArray<float> values(std::vector<float>(8, 1.0f));
  with({.most_in_queue = 3, .loses_a_rank_at = 0});
  const std::string error = error_of([&] {
    for (int i = 0; i < 50; ++i)
      first_->wait(first_->all_reduce(DType::f32, values.get(), 8));
  });
  EXPECT_TRUE(contains(error, "another rank was lost")) << error;
}

TEST_F(Failure, OfACollectiveThatHangsIsGivenUp) {
  const DeviceArray<float> values(std::vector<float>(8, 1.0f));
  with({.longest_delay_us = 20'000, .hangs_at = 1, .aborts_together = true});
  std::atomic<int> num_later = 0;
  (void)first_->all_reduce(DType::f32, values.get(), 8);
  first_->wait(second_->all_reduce(DType::f32, values.get(), 8));
  (void)first_->all_reduce(DType::f32, values.get(), 8);
  for (int i = 0; i < 5; ++i)
    fake::put(stream_->stream(), [&] { ++num_later; });
  second_->abandon();
  EXPECT_EQ(num_later, 5) << "it returns when the stream is empty";
  EXPECT_EQ(fake::num_communicators(), 0);
  EXPECT_EQ(cudaStreamQuery(static_cast<cudaStream_t>(stream_->stream())), cudaSuccess)
      << "no memory is touched any more";
  EXPECT_THROW((void)first_->all_reduce(DType::f32, values.get(), 8), core::Error);
  second_->abandon();
}

/// Gives up as shard::ModelShards does, whose memory it is.
struct Abandon {
  explicit Abandon(Group& of) : group(of) {}
  ~Abandon() { group.abandon(); }
  Abandon(const Abandon&) = delete;
  Abandon& operator=(const Abandon&) = delete;
  Group& group;
};

/// Groups and stream end with what is on its way, with `Abandon` before it or not.
void unwind(std::shared_ptr<comm::DeviceStream> stream, std::shared_ptr<Group> first,
            std::shared_ptr<Group> second, bool abandons) {
  const DeviceArray<float> values(std::vector<float>(8, 1.0f));
  const std::shared_ptr<comm::DeviceStream> last = std::move(stream);
  const std::shared_ptr<Group> one = std::move(first), other = std::move(second);
  (void)one->all_reduce(DType::f32, values.get(), 8);
  (void)other->all_reduce(DType::f32, values.get(), 8);
  std::optional<Abandon> abandon;
  if (abandons) abandon.emplace(*one);
  throw std::runtime_error("elsewhere");
}

TEST_F(Failure, DoesNotHoldUpAnExceptionThatUnwinds) {
  // A collective that others do not come to; and one that NCCL never has under way.
  const fake::Settings hanging{.hangs_at = 0}, never_under_way{.num_in_progress = 1 << 30};
  for (const auto& [settings, abandons] :
       {std::pair(hanging, true), std::pair(hanging, false), std::pair(never_under_way, true),
        std::pair(never_under_way, false)}) {
    if (stream_ == nullptr) {
      with({});
      stream_ = make_stream();
      first_ = comm::make_nccl_group(world(), stream_);
      second_ = comm::make_nccl_group(world(), stream_);
    }
    with(settings);
    EXPECT_THROW(unwind(std::move(stream_), std::move(first_), std::move(second_), abandons),
                 std::runtime_error);
    EXPECT_EQ(fake::num_communicators(), 0);
  }
}

TEST_F(Failure, IsACollectiveThatOtherRanksDoNotTakePartIn) {
  if (world().size() == 1) GTEST_SKIP() << "needs another rank";
  const DeviceArray<float> values(std::vector<float>(8 * ranks(), 1.0f));
  const bool is_other = world().rank() == 1;
  const std::string error = error_of([&] {
    (void)first_->all_reduce(DType::f32, values.get(), is_other ? 7 : 8);
    first_->synchronize();
  });
  EXPECT_TRUE(contains(error, "all_reduce meets another collective")) << error;
  EXPECT_EQ(fake::take_violations().size(), 1u) << "the fake's own complaint";
}

TEST_F(Failure, IsAMessageOfAnotherSize) {
  if (world().size() == 1) GTEST_SKIP() << "needs another rank";
  const DeviceArray<std::int64_t> own({1, 1}), all({2, 2});
  std::vector<std::int64_t> out(ranks(), 0), in = out;
  if (first_->rank() == 0) out[1] = 16;
  if (first_->rank() == 1) in[0] = 8;
  (void)first_->all_to_all(own.get(), out, all.get(), in);
  const std::string error = error_of([&] { first_->synchronize(); });
  if (world().rank() == 1) {
    EXPECT_NE(error, "");
    EXPECT_EQ(fake::take_violations().size(), 1u);
  }
}

TEST_F(Failure, GroupsEndInAnyOrderWithWorkOnTheirStream) {
  const DeviceArray<float> values(std::vector<float>(8, 1.0f));
  with({.longest_delay_us = 300});
  for (const bool first_goes_first : {true, false}) {
    for (const bool stream_goes_first : {true, false}) {
      auto stream = make_stream();
      std::shared_ptr<Group> one = comm::make_nccl_group(world(), stream);
      std::shared_ptr<Group> other = comm::make_nccl_group(world(), stream);
      (void)one->all_reduce(DType::f32, values.get(), 8);
      (void)other->all_reduce(DType::f32, values.get(), 8);
      if (stream_goes_first) stream.reset();
      (first_goes_first ? one : other).reset();
      (first_goes_first ? other : one).reset();
    }
  }
}

/// Asks a communicator `count` times whether what was begun is under way.
ncclResult_t asked(ncclComm_t comm, int count) {
  ncclResult_t state = ncclInProgress;
  for (int i = 0; i < count; ++i)
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}

/// Whoever watches asks too, and would never learn that a rank was lost.
TEST(Fake, NoCallOfNcclWaitsForRoomOnAFullDevice) {
  const auto stream = std::make_shared<comm::DeviceStream>(compute_stream);
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
  while (asked(comm, 1) == ncclInProgress) {
  }
  const DeviceArray<float> values(std::vector<float>(8, 1.0f));
  fake::set({.num_in_progress = 0, .most_in_queue = 1});
  const auto room = static_cast<cudaStream_t>(stream->stream());
  {
    fake::Gate gate;
    gate.hold(room);
    gate.wait_until_reached();
    fake::put(room, [] {});
    EXPECT_EQ(ncclAllReduce(values.get(), values.get(), 8, ncclFloat32, ncclSum, comm, room),
              ncclInProgress);
    EXPECT_EQ(asked(comm, 10), ncclInProgress);
  }
  EXPECT_EQ(cudaStreamSynchronize(room), cudaSuccess);
  EXPECT_EQ(asked(comm, 1), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
  while (asked(comm, 1) == ncclInProgress) {
  }
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

class Connecting : public tests::OnFakeGpus {};

TEST_F(Connecting, FailsOnAllRanksIfItFailsOnOne) {
  const auto stream = make_stream();
  for (int unlucky = 0; unlucky < world().size(); ++unlucky) {
    with({.cannot_connect = world().rank() == unlucky});
    try {
      comm::make_nccl_group(world(), stream);
      ADD_FAILURE() << "it was made";
    } catch (const comm::AgreedError& error) {
      EXPECT_EQ(error.kind(), core::ErrorKind::environment);
      EXPECT_TRUE(contains(error.what(),
                           "ncclCommInitRankConfig on \"world\", rank " + std::to_string(unlucky)))
          << error.what();
    }
    EXPECT_EQ(fake::num_communicators(), 0);
  }
  with({});
  EXPECT_NO_THROW(comm::make_nccl_group(world(), stream)) << "the stream is of use all the same";
}

TEST_F(Connecting, FailsOnAllRanksIfTheFirstHasNoId) {
  with({.gives_no_id = world().is_root()});
  EXPECT_THROW(comm::make_nccl_group(world(), make_stream()), comm::AgreedError);
}

TEST_F(Connecting, FailsOnAllRanksIfTheFirstCollectivesFailOnOne) {
  const auto stream = make_stream();
  for (int unlucky = 0; unlucky < world().size(); ++unlucky) {
    with({.loses_a_rank_at = world().rank() == unlucky ? 1 : -1});
    EXPECT_THROW(comm::make_nccl_group(world(), stream), comm::AgreedError);
    EXPECT_EQ(fake::num_communicators(), 0);
  }
}

TEST_F(Connecting, TwoRanksOnOneGpuAreRefusedByNccl) {
  if (world().size() == 1) GTEST_SKIP() << "needs another rank";
  comm::use_gpu(0);
  try {
    comm::make_nccl_group(world(), make_stream());
    ADD_FAILURE() << "it was made";
  } catch (const comm::AgreedError& error) {
    EXPECT_TRUE(contains(error.what(), "Duplicate GPU detected")) << error.what();
  }
}

}  // namespace
}  // namespace finetune::fake_cuda::failure_test
