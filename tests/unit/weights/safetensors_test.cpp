// SPDX-License-Identifier: Apache-2.0
#include "weights/detail/safetensors.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>

#include "unit/weights/support.hpp"

namespace finetune::weights::safetensors_test {
namespace {

/// Reads `bytes` as a safetensors file.
SafetensorsHeader parse_file(std::string_view bytes) {
  if (bytes.size() < 8) {
    core::fail(core::ErrorKind::input, {"m.safetensors", "too short", "", ""});
  }
  std::array<std::byte, 8> prefix;
  std::memcpy(prefix.data(), bytes.data(), 8);
  const auto size = static_cast<std::int64_t>(bytes.size());
  const auto length = header_length(prefix, size, "m.safetensors");
  return parse_safetensors(bytes.substr(8, static_cast<std::size_t>(length)), size,
                           "m.safetensors");
}

/// The message with which a file of this header and `data_bytes` bytes of data is refused.
std::string refusal(std::string_view header, std::size_t data_bytes = 0) {
  const Thrown thrown =
      thrown_by([&] { parse_file(file_of(header, std::string(data_bytes, 'x'))); });
  EXPECT_EQ(thrown.kind, core::ErrorKind::input);
  EXPECT_TRUE(thrown.message.starts_with("m.safetensors: ")) << thrown.message;
  return thrown.message;
}

#define EXPECT_REFUSED(text, ...) \
  EXPECT_NE(refusal(__VA_ARGS__).find(text), std::string::npos) << refusal(__VA_ARGS__)

TEST(Safetensors, ReadsDtypesShapesAndMetadata) {
  const auto header =
      parse_file(file_of("{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                         "\"__metadata__\":{\"format\":\"pt\"},"
                         "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}   ",
                         std::string(16, 'x')));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_TRUE(header.tensors[0].shape.empty());
  EXPECT_EQ(header.tensors[1].dtype, core::DType::bf16);
  EXPECT_EQ(header.tensors[1].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(header.tensors[1].size_bytes, 12);
  EXPECT_EQ(header.tensors[1].offset_bytes - header.tensors[0].offset_bytes, 4);
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(Safetensors, NoTensorsIsAFile) {
  EXPECT_TRUE(parse_file(file_of("{}", "")).tensors.empty());
}

TEST(Safetensors, TensorsWithoutElementsTakeNoBytes) {
  const auto header =
      parse_file(file_of("{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                         "\"a\":{\"dtype\":\"F32\",\"shape\":[0,9],\"data_offsets\":[0,0]},"
                         "\"c\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[2,2]}}",
                         "xx"));
  EXPECT_EQ(header.tensors.size(), 3u);
}

TEST(Safetensors, LengthOfHeaderIsCheckedBeforeUse) {
  const auto refused = [](std::string_view bytes) {
    return thrown_by([&] { parse_file(bytes); }).message;
  };
  EXPECT_EQ(refused(u64(100'000'001) + "{}"),
            "m.safetensors: its header would have 100000001 bytes (at most 100,000,000 are "
            "allowed). Is it a safetensors file? Otherwise copy or download it again.");
  EXPECT_NE(refused(u64(UINT64_MAX) + "{}").find("18446744073709551615 bytes"), std::string::npos);
  EXPECT_EQ(refused(u64(3) + "{}"),
            "m.safetensors: ends at byte 10 (its header alone ends at 11). The file is truncated; "
            "copy or download it again.");
  EXPECT_NE(refused(u64(0)).find("does not begin with {"), std::string::npos);
  EXPECT_NE(refused("version https://git-lfs").find("git lfs pull"), std::string::npos);
}

TEST(Safetensors, TruncatedFileIsSaidToBeTruncated) {
  const std::string header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  ";
  EXPECT_EQ(refusal(header, 7),
            "m.safetensors: ends at byte " + std::to_string(8 + header.size() + 7) +
                " (the header promises " + std::to_string(8 + header.size() + 8) +
                "). The file is truncated; copy or download it again.");
}

TEST(Safetensors, HeaderIsOneJsonObject) {
  EXPECT_REFUSED("does not begin with {", " {}");
  EXPECT_REFUSED("does not begin with {", "[]");
  EXPECT_REFUSED("broken JSON at byte 10", "{}{}");
  EXPECT_REFUSED("broken JSON at byte 10", "{}x");
  EXPECT_REFUSED("broken JSON", "{\"a\":");
  EXPECT_REFUSED("broken JSON", "{\"a\"}");
  EXPECT_REFUSED("broken JSON", "{\"\\ud800\":{}}");  // half of a surrogate pair
  EXPECT_REFUSED("byte 10 is not valid UTF-8", "{\"\xff\":1}");
  EXPECT_REFUSED("byte 10 is NUL", std::string_view("{}\0{}", 5));
}

TEST(Safetensors, RefusesValuesOfAnotherType) {
  EXPECT_REFUSED("tensor \"a\": a number does not belong here", "{\"a\":1}");
  EXPECT_REFUSED("tensor \"a\": null does not belong here", "{\"a\":null}");
  EXPECT_REFUSED("an array does not belong here", "{\"a\":[[[[[[[[[[[[[[[[[[");
  EXPECT_REFUSED("an object does not belong here", "{\"a\":{\"dtype\":{\"x\":{}}}}");
  EXPECT_REFUSED("tensor \"a\" dtype: a number", "{\"a\":{\"dtype\":1}}");
  EXPECT_REFUSED("tensor \"a\" shape: a negative number", "{\"a\":{\"shape\":[-1]}}");
  EXPECT_REFUSED("tensor \"a\" shape: a fraction", "{\"a\":{\"shape\":[1.0]}}");
  EXPECT_REFUSED("tensor \"a\" shape: a fraction", "{\"a\":{\"shape\":[18446744073709551616]}}");
  EXPECT_REFUSED("tensor \"a\" shape is 9223372036854775808",
                 "{\"a\":{\"shape\":[9223372036854775808]}}");
  EXPECT_REFUSED("tensor \"a\" shape: a string", "{\"a\":{\"shape\":[\"1\"]}}");
  EXPECT_REFUSED("tensor \"a\" shape: an array", "{\"a\":{\"shape\":[[1]]}}");
  EXPECT_REFUSED("more than 8 numbers", "{\"a\":{\"shape\":[1,1,1,1,1,1,1,1,1]}}");
  EXPECT_REFUSED("more than 2 numbers", "{\"a\":{\"data_offsets\":[0,1,2]}}");
  EXPECT_REFUSED("fewer than 2 numbers", "{\"a\":{\"data_offsets\":[0]}}");
  EXPECT_REFUSED("__metadata__ \"x\": a number", "{\"__metadata__\":{\"x\":1}}");
  EXPECT_REFUSED("__metadata__ \"x\": an object", "{\"__metadata__\":{\"x\":{}}}");
  EXPECT_REFUSED("__metadata__: an array", "{\"__metadata__\":[]}");
}

TEST(Safetensors, RefusesWhatIsMissingUnknownOrTwice) {
  const std::string a = "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}";
  EXPECT_REFUSED("tensor \"a\" is incomplete", "{\"a\":{}}");
  EXPECT_REFUSED("tensor \"a\" is incomplete", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1);
  EXPECT_REFUSED("tensor \"a\" has a field \"strides\"", "{\"a\":{\"strides\":[1]}}");
  EXPECT_REFUSED("tensor \"a\" has dtype \"F8_E5M2\"", "{\"a\":{\"dtype\":\"F8_E5M2\"}}");
  EXPECT_REFUSED("tensor \"a\" has dtype \"f32\"", "{\"a\":{\"dtype\":\"f32\"}}");
  EXPECT_REFUSED("tensor \"a\" dtype occurs twice", "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}");
  EXPECT_REFUSED("tensor \"a\" occurs twice", "{" + a + "," + a + "}", 1);
  EXPECT_REFUSED("__metadata__ occurs twice", "{\"__metadata__\":{},\"__metadata__\":{}}");
  EXPECT_REFUSED("__metadata__ \"x\" occurs twice", "{\"__metadata__\":{\"x\":\"1\",\"x\":\"1\"}}");
  EXPECT_REFUSED("has a name of 1025 bytes", "{\"" + std::string(1025, 'n') + "\":{}}");
}

std::string tensor(std::string_view name, std::string_view shape, std::string_view offsets) {
  return fmt::format("\"{}\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{}]}}", name,
                     shape, offsets);
}

TEST(Safetensors, EveryByteBelongsToExactlyOneTensor) {
  const auto two = [](std::string_view first, std::string_view second) {
    return "{" + tensor("a", "1", first) + "," + tensor("b", "1", second) + "}";
  };
  EXPECT_NO_THROW(parse_file(file_of(two("0,4", "4,8"), "12345678")));
  EXPECT_REFUSED("tensor \"b\" overlaps tensor \"a\"", two("0,4", "0,4"), 4);
  EXPECT_REFUSED("tensor \"b\" overlaps tensor \"a\"", two("0,4", "2,6"), 6);
  EXPECT_REFUSED("4 bytes before tensor \"b\" belong to no tensor", two("0,4", "8,12"), 12);
  EXPECT_REFUSED("1 bytes before tensor \"a\" belong to no tensor", two("1,5", "5,9"), 9);
  EXPECT_REFUSED("1 bytes at the end belong to no tensor", two("0,4", "4,8"), 9);
  EXPECT_REFUSED("5 bytes at the end belong to no tensor", "{}", 5);
}

TEST(Safetensors, ShapeDtypeAndBytesAgree) {
  EXPECT_REFUSED("has 4 bytes (shape [2] of F32 needs 8)", "{" + tensor("a", "2", "0,4") + "}", 4);
  EXPECT_REFUSED("has 8 bytes (shape [1] of F32 needs 4)", "{" + tensor("a", "1", "0,8") + "}", 8);
  EXPECT_REFUSED("has 0 bytes (shape [] of F32 needs 4)", "{" + tensor("a", "", "0,0") + "}");
  EXPECT_REFUSED("its end is before its beginning", "{" + tensor("a", "1", "4,0") + "}", 4);
  EXPECT_REFUSED("beyond any file", "{" + tensor("a", "4294967296,4294967296", "0,0") + "}");
  EXPECT_REFUSED("beyond any file",
                 "{" + tensor("a", "4294967296,4294967296,0", "0,0") + "}");  // 0 only at the end
  EXPECT_REFUSED("ends at byte",
                 "{" + tensor("a", "2305843009213693951", "0,9223372036854775804") + "}", 4);
}

TEST(Safetensors, NamesCannotSteerATerminal) {
  const std::string message = refusal("{\"\\u001b[2J\\nroot\":{}}");
  EXPECT_NE(message.find("\\x1b[2J\\x0aroot"), std::string::npos) << message;
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

std::int64_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

/// AddressSanitizer keeps freed memory, so there is nothing to measure under it.
void expect_growth_below([[maybe_unused]] std::int64_t before,
                         [[maybe_unused]] std::int64_t limit) {
#ifndef FINETUNE_ADDRESS_SANITIZER
  EXPECT_LT(peak_memory_bytes() - before, limit);
#endif
}

TEST(Safetensors, MutatedFilesAreReadOrRefused) {
  const std::string good =
      file_of("{\"__metadata__\":{\"format\":\"pt\"}," + tensor("a", "2,1", "0,8") + "," +
                  tensor("b", "", "8,12") + "," + tensor("c", "0", "12,12") + "}",
              "0123456789ab");
  ASSERT_EQ(parse_file(good).tensors.size(), 3u);
  const std::int64_t before = peak_memory_bytes();
  int refused = 0;
  for (std::uint64_t number = 0; number < 5000; ++number) {
    const std::string bytes = mutated(good, number);
    try {
      const SafetensorsHeader header = parse_file(bytes);
      std::int64_t end = 8;
      for (const SafetensorsTensor& tensor : header.tensors) {
        EXPECT_GE(tensor.offset_bytes, end) << number;
        end = tensor.offset_bytes + tensor.size_bytes;
      }
      EXPECT_LE(end, std::ssize(bytes)) << number;
    } catch (const core::Error& error) {
      EXPECT_EQ(error.kind(), core::ErrorKind::input) << number << ": " << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 2500);  // the others changed only names and values
  EXPECT_LT(refused, 5000);
  expect_growth_below(before, 32 << 20);
}

TEST(Safetensors, BombsAreRefusedInBoundedMemory) {
  const std::int64_t before = peak_memory_bytes();
  const std::size_t size = 8 << 20;
  std::string entries;
  while (entries.size() < size)
    entries += fmt::format("\"{}\":\"\",", entries.size());
  EXPECT_REFUSED("an array", "{\"a\":" + std::string(size, '['));
  EXPECT_REFUSED("__metadata__ has more than 65536 entries", "{\"__metadata__\":{" + entries);
  EXPECT_REFUSED("has a name of 8388608 bytes", "{\"" + std::string(size, 'n') + "\":{}}");
  expect_growth_below(before, 128 << 20);
}

}  // namespace
}  // namespace finetune::weights::safetensors_test
