// SPDX-License-Identifier: Apache-2.0
// Every message and every dataset must be the same on any number of ranks.
#include "data/tokens/load.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "comm/agree.hpp"
#include "support/ranks.hpp"
#include "unit/data/dialogues.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::load_test {
namespace {

using tests::fake_bos;
using tests::fake_eos;
using tests::MemorySource;
using tests::refusal;
using tests::world;
using Ids = std::vector<std::int32_t>;
using Samples = std::vector<std::vector<Segment>>;

DatasetOptions options_of(std::int64_t max_seq_length) {
  DatasetOptions options;
  options.max_seq_length = max_seq_length;
  options.vocab_size = tests::fake_vocab_size;
  return options;
}

std::vector<Segment> question(const std::string& prompt, const std::string& answer) {
  return {{prompt, false}, {answer, true}};
}

Loaded load_samples(const Samples& samples, Layout layout, const DatasetOptions& options,
                    const comm::Communicator& ranks = world()) {
  return load({ranks, {}}, MemorySource(samples), layout, options);
}

std::string refusal_of(const Samples& samples, const DatasetOptions& options,
                       Layout layout = Layout::separate) {
  return refusal([&] { load_samples(samples, layout, options); });
}

TEST(Load, KeepsTheSamplesInOrderOnEveryRank) {
  const Loaded loaded = load_samples({question("a", "bc"), question("", "d"), question("ef", "g"),
                                      question("h", "i"), question("jkl", "m")},
                                     Layout::separate, options_of(16));
  ASSERT_EQ(loaded.dataset.num_samples(), 5);
  EXPECT_EQ(loaded.dataset.tokens(0).ids, (Ids{fake_bos, 'a', 'b', 'c', fake_eos}));
  EXPECT_EQ(loaded.dataset.tokens(0).labels, (Ids{-100, -100, 'b', 'c', fake_eos}));
  EXPECT_EQ(loaded.dataset.tokens(1).ids, (Ids{fake_bos, 'd', fake_eos}));
  EXPECT_EQ(loaded.dataset.tokens(4).ids, (Ids{fake_bos, 'j', 'k', 'l', 'm', fake_eos}));
  EXPECT_EQ(loaded.report.num_read, 5);
  EXPECT_EQ(loaded.report.num_samples, 5);
  EXPECT_EQ(loaded.report.num_tokens, 5 + 3 + 5 + 4 + 6);
  EXPECT_EQ(loaded.report.num_trained_tokens, 3 + 2 + 2 + 2 + 2);
  EXPECT_EQ(loaded.report.longest, 6);
  EXPECT_EQ(loaded.report.eos_trained, 5);
  EXPECT_EQ(loaded.report.num_dropped, 0);
}

TEST(Load, ShowsTheSameConversationAndEndsOnAnyNumberOfRanks) {
  using tests::asked;
  std::vector<std::vector<tests::Said>> samples;
  for (int i = 0; i < 9; ++i)
    samples.push_back(asked("q", std::string(static_cast<std::size_t>(1 + i % 3), 'a')));
  samples[4][1].has_end = false;
  const auto loaded = [&](const comm::Communicator& ranks) {
    return load({ranks, ranks}, tests::Dialogues(samples), Layout::separate,
                tests::dialogue_options());
  };
  const auto report = [&](const comm::Communicator& ranks) { return loaded(ranks).report; };
  const auto said = [&](const comm::Communicator& ranks) {
    const Loaded one = loaded(ranks);
    return to_string(one.report, "data", 100) + one.ids_fingerprint;
  };
  EXPECT_EQ(said(world()), said({}));
  EXPECT_EQ(report(world()).example, 0);
  // It may be in the part of any rank, behind samples that all ranks have.
  for (const std::size_t at : {8, 5, 2}) {
    samples[at] = asked("a", "b") + asked("c", "d");
    EXPECT_EQ(said(world()), said({}));
    EXPECT_EQ(report(world()).example, static_cast<std::int64_t>(at));
    EXPECT_EQ(report(world()).example_where, "chat.jsonl:" + std::to_string(at + 1));
  }
  EXPECT_EQ(report(world()).num_answers, 12);
  EXPECT_EQ(report(world()).num_open, 1);
  EXPECT_EQ(report(world()).ends, (std::vector<EndCount>{{"</s>", 11}}));
}

TEST(Load, MakesTheSameDatasetAsOneRank) {
  Samples samples;
  for (int i = 0; i < 23; ++i)
    samples.push_back(question(std::string(static_cast<std::size_t>(i % 5), 'p'),
                               std::string(static_cast<std::size_t>(i % 7 + 1), 'a')));
  for (const Layout layout : {Layout::separate, Layout::continuous}) {
    const Loaded together = load_samples(samples, layout, options_of(8));
    const Loaded alone = load_samples(samples, layout, options_of(8), comm::Communicator());
    EXPECT_EQ(tests::fingerprint_of(together.dataset), tests::fingerprint_of(alone.dataset));
    EXPECT_EQ(together.fingerprint, alone.fingerprint);
    EXPECT_EQ(to_json(together.report), to_json(alone.report));
  }
}

TEST(Load, WorksWithMoreRanksThanSamples) {
  const Loaded loaded = load_samples({question("a", "b")}, Layout::separate, options_of(8));
  EXPECT_EQ(loaded.dataset.num_samples(), 1);
  EXPECT_EQ(loaded.dataset.tokens(0).ids, (Ids{fake_bos, 'a', 'b', fake_eos}));
}

TEST(Load, CutsDocumentsIntoBlocksWhereEveryTokenIsATargetOnce) {
  // The stream is B a b c E B d e E: 9 tokens.
  const Samples documents = {{{"abc", true}}, {{"de", true}}};
  const Loaded loaded = load_samples(documents, Layout::continuous, options_of(3));
  ASSERT_EQ(loaded.dataset.num_samples(), 3);
  EXPECT_EQ(loaded.dataset.tokens(0).ids, (Ids{fake_bos, 'a', 'b', 'c'}));
  EXPECT_EQ(loaded.dataset.tokens(1).ids, (Ids{'c', fake_eos, fake_bos, 'd'}));
  EXPECT_EQ(loaded.dataset.tokens(2).ids, (Ids{'d', 'e', fake_eos}));
  EXPECT_EQ(loaded.dataset.num_trained_tokens(), 8);
  EXPECT_EQ(loaded.report.eos_trained, 2);
  EXPECT_EQ(loaded.report.num_read, 2);
  EXPECT_EQ(loaded.report.of(SampleKind::overlong).number, 0);
  EXPECT_EQ(loaded.report.longest, 5);
}

TEST(Load, LosesNoTokenAtAnyBlockLength) {
  const Samples documents = {{{"abc", true}}, {{"de", true}}};
  for (std::int64_t length = 2; length <= 10; ++length) {
    const Loaded loaded = load_samples(documents, Layout::continuous, options_of(length));
    EXPECT_EQ(loaded.dataset.num_samples(), (8 + length - 1) / length);
    EXPECT_EQ(loaded.dataset.num_trained_tokens(), 8);
  }
}

TEST(Load, CutsOverlongSamplesAndCountsThem) {
  const Loaded loaded =
      load_samples({question("a", "bcd"), question("a", "b")}, Layout::separate, options_of(4));
  EXPECT_EQ(loaded.dataset.tokens(0).ids, (Ids{fake_bos, 'a', 'b', 'c'}));
  EXPECT_EQ(loaded.dataset.tokens(1).ids, (Ids{fake_bos, 'a', 'b', fake_eos}));
  EXPECT_EQ(loaded.report.of(SampleKind::overlong).number, 1);
  EXPECT_EQ(loaded.report.of(SampleKind::truncated).number, 1);
  EXPECT_EQ(loaded.report.num_dropped, 0);
  EXPECT_EQ(loaded.report.longest, 6);
  EXPECT_EQ(loaded.report.eos_trained, 1);
}

TEST(Load, DropsOverlongSamplesWhereAsked) {
  DatasetOptions options = options_of(4);
  options.on_overlong = OnOverlong::drop;
  // The first would also be masked if it were cut: dropped is dropped.
  const Loaded loaded =
      load_samples({question("abcdef", "g"), question("a", "b")}, Layout::separate, options);
  ASSERT_EQ(loaded.dataset.num_samples(), 1);
  EXPECT_EQ(loaded.dataset.tokens(0).ids, (Ids{fake_bos, 'a', 'b', fake_eos}));
  EXPECT_EQ(loaded.report.of(SampleKind::overlong).number, 1);
  EXPECT_EQ(loaded.report.of(SampleKind::truncated).number, 0);
  EXPECT_EQ(loaded.report.num_dropped, 1);
  EXPECT_EQ(loaded.report.of(SampleKind::masked).number, 0);
}

TEST(Load, RefusesOverlongSamplesWhereAsked) {
  DatasetOptions options = options_of(4);
  options.on_overlong = OnOverlong::error;
  EXPECT_EQ(refusal_of({question("a", "b"), question("a", "b"), question("a", "bcd"),
                        question("a", "b"), question("a", "bcde")},
                       options),
            "65: memory:3: the sample is longer than data.max_seq_length = 4 (2 samples are, the "
            "longest has 7 tokens). Raise data.max_seq_length, or set data.on_overlong = "
            "\"truncate\" or \"drop\".");
}

TEST(Load, RefusesSamplesWithoutAnAnswer) {
  EXPECT_EQ(
      refusal_of({question("a", "b"), question("a", ""), question("a", "b"), question("a", "")},
                 options_of(8)),
      "65: memory:2: no token of the sample is marked for training (2 such samples "
      "would add nothing to the loss). Correct or remove it, or set data.on_masked = \"drop\".");
}

TEST(Load, RefusesSamplesWhoseAnswerWasCutOff) {
  EXPECT_EQ(refusal_of({question("a", "b"), question("abcd", "e")}, options_of(4)),
            "65: memory:2: no token of the sample is trained, its answer lies beyond "
            "data.max_seq_length = 4 (1 such sample would add nothing to the loss). Raise "
            "data.max_seq_length, or set data.on_masked = \"drop\".");
}

TEST(Load, RefusesEmptyDocuments) {
  EXPECT_EQ(refusal_of({{{"a", true}}, {{"", true}}}, options_of(4), Layout::continuous),
            "65: memory:2: the document is empty, or no token of it is marked for training (1 such "
            "sample would add nothing to the loss). Correct or remove it, or set data.on_masked = "
            "\"drop\".");
}

TEST(Load, DropsMaskedSamplesWhereAsked) {
  DatasetOptions options = options_of(4);
  options.on_masked = OnMasked::drop;
  const Loaded loaded = load_samples({question("a", ""), question("a", "b"), question("abcd", "e")},
                                     Layout::separate, options);
  EXPECT_EQ(loaded.dataset.num_samples(), 1);
  EXPECT_EQ(loaded.report.of(SampleKind::masked).number, 2);
  EXPECT_EQ(loaded.report.num_dropped, 2);
  EXPECT_EQ(loaded.report.of(SampleKind::overlong).number, 1);
  EXPECT_EQ(loaded.report.of(SampleKind::truncated).number, 0);
}

TEST(Load, RefusesToTrainOnNothing) {
  DatasetOptions options = options_of(4);
  options.name = "training data";
  options.on_masked = OnMasked::drop;
  EXPECT_EQ(refusal_of({question("a", ""), question("abcd", "e")}, options),
            "65: training data: none of 2 samples is left (1 are longer than data.max_seq_length = "
            "4, 2 have no trained token). Check data.format, data.max_seq_length and "
            "data.on_overlong.");
}

TEST(Load, RefusesATokenizerThatIsNotTheModels) {
  DatasetOptions options = options_of(16);
  options.vocab_size = 257;  // ends before the end-of-text token
  EXPECT_EQ(
      refusal_of({question("a", "b"), question("a", "c")}, options),
      "65: memory:1: holds the token id 257 (the model's vocabulary has 257 entries, ids 0 to "
      "256). Use the tokenizer that belongs to the model.");
}

/// Its last sample cannot be read.
class BrokenReader final : public SampleReader {
 public:
  std::int64_t size() const override { return 5; }
  Sample sample(std::int64_t i) const override {
    if (i == 4) core::fail(core::ErrorKind::input, {"memory:5", "cannot be read", "", ""});
    return {question("a", "b"), ""};
  }
};

TEST(Load, ASampleThatOneRankCannotReadStopsAll) {
  std::string message;
  try {
    const BrokenReader reader;
    load({world(), {}}, tests::ReaderSource(reader), Layout::separate, options_of(8));
  } catch (const comm::AgreedError& error) {
    message = error.what();
  }
  EXPECT_EQ(message, "memory:5: cannot be read.");
}

TEST(Load, ARefusalIsAgreedSoThatOneRankPrintsIt) {
  EXPECT_THROW(load_samples({question("a", "")}, Layout::separate, options_of(8)),
               comm::AgreedError);
}

TEST(Load, RefusesRanksThatSeeDifferentFiles) {
  if (world().size() == 1) GTEST_SKIP() << "needs more than one rank";
  const Samples samples(world().rank() == 1 ? 3 : 2, question("a", "b"));
  EXPECT_TRUE(refusal_of(samples, options_of(8))
                  .starts_with("78: rank 1: its number of samples in the data is \"3\" (rank 0 has "
                               "\"2\")"));
}

}  // namespace
}  // namespace finetune::data::load_test
