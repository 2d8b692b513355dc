// SPDX-License-Identifier: Apache-2.0
#include "data/records/decompress.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <thread>

#include "core/file_lock.hpp"
#include "data/records/detail/json_records.hpp"
#include "data/text/record_reader.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data::decompress_test {
namespace {

namespace fs = std::filesystem;
using tests::refusal;
using tests::TemporaryFolder;

constexpr int as_gzip = 15 + 16;

std::string gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, as_gzip, 9, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<unsigned char*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string content(const PlainFile& plain) {
  std::string text(static_cast<std::size_t>(plain.file().size_bytes()), '\0');
  plain.file().read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

/// Copies go to a folder of the test's own.
class Decompress : public testing::Test {
 protected:
  Decompress() {
    ::setenv("TMPDIR", (folder_.path() / "tmp").c_str(), 1);
    fs::create_directory(folder_.path() / "tmp");
  }
  ~Decompress() override { ::unsetenv("TMPDIR"); }

  std::string refusal_of(const std::string& name, std::string_view bytes) {
    const auto path = folder_.write(name, bytes);
    return refusal([&] { open_plain(path); }, folder_.path());
  }
  std::size_t num_copies() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& each :
         fs::recursive_directory_iterator(folder_.path() / "tmp"))
      count += each.is_regular_file() ? 1 : 0;
    return count;
  }

  const TemporaryFolder folder_;
};

TEST_F(Decompress, PlainFilesAreOpenedAsTheyAre) {
  EXPECT_EQ(content(open_plain(folder_.write("a.jsonl", "plain"))), "plain");
  EXPECT_EQ(content(open_plain(folder_.write("empty.gz", ""))), "");
  EXPECT_EQ(num_copies(), 0u);
}

TEST_F(Decompress, GzipAndZstdAreKnownByTheirFirstBytes) {
  EXPECT_EQ(content(open_plain(folder_.write("a.jsonl.gz", gzip("one")))), "one");
  EXPECT_EQ(content(open_plain(folder_.write("a.jsonl.zst", zstd("two")))), "two");
  EXPECT_EQ(content(open_plain(folder_.write("misnamed.json", gzip("three")))), "three");
}

TEST_F(Decompress, ConcatenatedMembersAndFramesAreOneText) {
  EXPECT_EQ(content(open_plain(folder_.write(
                "a.gz", gzip("one ") + gzip("") + gzip("two") + std::string(7, '\0')))),
            "one two");
  EXPECT_EQ(content(open_plain(folder_.write("a.zst", zstd("one ") + zstd("two")))), "one two");
}

TEST_F(Decompress, TextsLongerThanTheBuffersAreWhole) {
  std::string text;
  for (std::int64_t i = 0; i < 400000; ++i)
    text += std::to_string(i * 7919 % 1000003) + "\n";
  ASSERT_GT(text.size(), std::size_t{2} << 20);
  EXPECT_EQ(content(open_plain(folder_.write("a.gz", gzip(text)))), text);
  EXPECT_EQ(content(open_plain(folder_.write("a.zst", zstd(text)))), text);
}

TEST_F(Decompress, ExactlyAFullBufferIsNoTruncation) {
  for (const std::size_t size : {std::size_t{1} << 20, std::size_t{2} << 20}) {
    const std::string text(size, 'x');
    EXPECT_EQ(content(open_plain(folder_.write("a.zst", zstd(text)))).size(), size);
    EXPECT_EQ(content(open_plain(folder_.write("a.gz", gzip(text)))).size(), size);
  }
}

TEST_F(Decompress, ErrorsNameLinesOfTheTextAndTheFileThatIsCompressed) {
  const auto path = folder_.write("a.jsonl.gz", gzip("{\"a\": 1}\n[]\n"));
  const JsonRecords records(open_plain(path));
  EXPECT_EQ(records.size(), 2);
  EXPECT_EQ(refusal([&] { records.object(1); }, folder_.path()),
            "65: a.jsonl.gz:2: is a JSON array (a sample is an object, { ... }). Correct or remove "
            "this entry.");
}

/// Records {"text": ...}.
class TextRecords final : public RecordReader {
 public:
  using RecordReader::RecordReader;

 private:
  void read(std::int64_t i, Sample& sample) const override {
    sample.segments = {{records().object(i).at("text").get<std::string>(), true}};
  }
};

TEST_F(Decompress, OfAFolderAFewFilesLieUnpackedAtATime) {
  constexpr int files = 12;
  fs::create_directory(folder_.path() / "data");
  for (int i = 0; i < files; ++i)
    folder_.write(fmt::format("data/{:02}.jsonl.gz", i),
                  gzip(fmt::format("{{\"text\": \"{}\"}}\n{{\"text\": \"b\"}}\n", i)));
  const auto reader = open_files(DataPath(folder_.path() / "data"), record_endings(),
                                 [](const fs::path& file) -> std::unique_ptr<SampleReader> {
                                   return std::make_unique<TextRecords>(file);
                                 });
  EXPECT_EQ(num_copies(), 0u) << "nothing was asked for";
  EXPECT_EQ(reader->size(), 2 * files);
  EXPECT_LE(num_copies(), 1u);
  for (std::int64_t i = 0; i < 2 * files; ++i) {
    const Sample sample = reader->sample(i);
    EXPECT_EQ(sample.segments[0].text, i % 2 == 1 ? "b" : std::to_string(i / 2));
    EXPECT_LE(num_copies(), 4u);
  }
  EXPECT_EQ(reader->sample(0).segments[0].text, "0") << "and again";
  EXPECT_LE(num_copies(), 4u);
}

TEST_F(Decompress, ManyProcessesShareOneCopyAndTheLastRemovesIt) {
  const auto path = folder_.write("a.gz", gzip("shared"));
  {
    const PlainFile first = open_plain(path);
    const PlainFile second = open_plain(path);
    EXPECT_EQ(num_copies(), 1u);
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      children.push_back(::fork());
      if (children.back() == 0) ::_exit(content(open_plain(path)) == "shared" ? 0 : 1);
    }
    for (const pid_t child : children) {
      int status = 1;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(content(second), "shared");
    EXPECT_EQ(num_copies(), 1u);
  }
  EXPECT_EQ(num_copies(), 0u);
}

TEST_F(Decompress, CopiesThatKilledRunsLeftAreRemovedUnlessSomebodyUsesThem) {
  const auto path = folder_.write("a.gz", gzip("text"));
  open_plain(path);
  const fs::path copies = fs::directory_iterator(folder_.path() / "tmp")->path();
  const auto write = [&](const char* name) {
    const int descriptor = ::open((copies / name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_GE(descriptor, 0);
    return descriptor;
  };
  for (const char* name : {"left.plain", "left.partial", "other"})
    ::close(write(name));
  const int read = write("read.plain");
  const int written = write("written.partial");
  ASSERT_EQ(core::try_lock(read, core::Lock::shared), core::Locked::yes);
  ASSERT_EQ(core::try_lock(written, core::Lock::exclusive), core::Locked::yes);
  EXPECT_EQ(content(open_plain(path)), "text");
  for (const char* name : {"left.plain", "left.partial"})
    EXPECT_FALSE(fs::exists(copies / name)) << name;
  for (const char* name : {"other", "read.plain", "written.partial"})
    EXPECT_TRUE(fs::exists(copies / name)) << name;
  ::close(read);
  ::close(written);
}

// The one who wrote a copy keeps it for a whole run, in which it waits for those who came
// meanwhile.
TEST_F(Decompress, WhoWaitedForACopyReadsItWhileItsWriterDoes) {
  const auto path = folder_.write("a.gz", gzip("text"));
  const auto copies = folder_.path() / "tmp" / ("finetune-" + std::to_string(::geteuid()));
  std::string name;
  {
    const PlainFile once = open_plain(path);
    for (const auto& entry : fs::directory_iterator(copies))
      name = entry.path().stem().string();
  }
  const auto partial = copies / (name + ".partial");
  const int writer = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(core::try_lock(writer, core::Lock::exclusive), core::Locked::yes);
  std::atomic<bool> is_there = false;
  std::future<std::string> read = std::async(std::launch::async, [&] {
    is_there = true;
    return content(open_plain(path));
  });
  while (!is_there)
    std::this_thread::yield();
  ASSERT_EQ(::write(writer, "text", 4), 4);
  fs::rename(partial, copies / (name + ".plain"));
  ASSERT_EQ(core::try_lock(writer, core::Lock::shared), core::Locked::yes);
  EXPECT_EQ(read.get(), "text");
  ::close(writer);
}

TEST_F(Decompress, AChangedFileIsDecompressedAgain) {
  const auto path = folder_.write("a.gz", gzip("before"));
  const PlainFile before = open_plain(path);
  fs::remove(path);
  folder_.write("a.gz", gzip("and after"));
  EXPECT_EQ(content(open_plain(path)), "and after");
}

TEST_F(Decompress, RefusesTruncatedAndDamagedFiles) {
  const std::string whole = gzip("a text that is long enough to be cut");
  EXPECT_EQ(refusal_of("a.gz", whole.substr(0, whole.size() - 9)),
            "65: a.gz: cannot be decompressed (the file is truncated). Copy or download the file "
            "again.");
  const std::string frame = zstd("a text that is long enough to be cut");
  EXPECT_EQ(refusal_of("a.zst", frame.substr(0, frame.size() - 3)),
            "65: a.zst: cannot be decompressed (the file is truncated). Copy or download the file "
            "again.");
  std::string damaged = whole;
  damaged[damaged.size() - 6] ^= 1;
  EXPECT_EQ(refusal_of("b.gz", damaged),
            "65: b.gz: cannot be decompressed (incorrect data check). Copy or download the file "
            "again.");
  EXPECT_TRUE(refusal_of("c.gz", whole + "garbage").starts_with("65: c.gz: cannot be decompr"));
  EXPECT_EQ(num_copies(), 0u);
}

TEST_F(Decompress, RefusesWhatIsNotWhatItIsCalled) {
  EXPECT_EQ(refusal_of("a.gz", "{\"a\": 1}\n"),
            "65: a.gz: is no gzip file (its first bytes are others). Rename it if it is not "
            "compressed; otherwise copy or download it again.");
}

TEST_F(Decompress, RefusesWhatExpandsLikeNoText) {
  const std::string zeros(std::size_t{80} << 20, '0');
  EXPECT_TRUE(
      refusal_of("bomb.zst", zstd(zeros)).find("expand to more than 64.0 MiB (no text does") !=
      std::string::npos)
      << refusal_of("bomb.zst", zstd(zeros));
  EXPECT_EQ(num_copies(), 0u);
}

TEST_F(Decompress, RefusesAFolderThatOthersMayWriteTo) {
  const auto copies = folder_.path() / "tmp" / ("finetune-" + std::to_string(::geteuid()));
  fs::create_directory(copies);
  fs::permissions(copies, fs::perms::all);
  EXPECT_TRUE(refusal_of("a.gz", gzip("x")).starts_with("69: tmp/finetune-"));
}

}  // namespace
}  // namespace finetune::data::decompress_test
