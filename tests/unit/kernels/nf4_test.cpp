// SPDX-License-Identifier: Apache-2.0
#include "kernels/nf4.hpp"

#include <limits>

#include "kernels/composed_packed.hpp"
#include "unit/kernels/golden_tensors.hpp"

namespace finetune::kernels::test::nf4_test {
namespace {

std::int64_t blocks(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block;
}

/// A tensor packed with double quantisation.
struct Packed {
  at::Tensor codes, absmax, absmax_codes, nested_absmax;
  float offset;

  explicit Packed(const at::Tensor& values)
      : codes(at::empty({(values.numel() + 1) / 2}, at::kByte)),
        absmax(at::empty({blocks(values.numel(), nf4_block)}, at::kFloat)),
        absmax_codes(at::empty({absmax.numel()}, at::kByte)),
        nested_absmax(at::empty({blocks(absmax.numel(), nested_block)}, at::kFloat)) {
    nf4_absmax(elements<float>(values), elements<float>(absmax));
    nf4_quantize(elements<float>(values), elements<float>(absmax), elements<std::uint8_t>(codes));
    offset = nested_offset(elements<float>(absmax));
    nested_quantize(elements<float>(absmax), offset, elements<std::uint8_t>(absmax_codes),
                    elements<float>(nested_absmax));
  }

  template <class T>
  at::Tensor unpacked(std::int64_t count) const {
    const at::Tensor out = at::empty({count}, scalar_type<T>());
    nf4_dequantize(Nf4<T>{.codes = elements<std::uint8_t>(codes),
                          .absmax_codes = elements<std::uint8_t>(absmax_codes),
                          .nested_absmax = elements<float>(nested_absmax),
                          .offset = offset,
                          .out = elements<T>(out)});
    return out;
  }
};

template <class T>
at::Tensor unpacked(const at::Tensor& codes, const at::Tensor& absmax, std::int64_t count) {
  const at::Tensor out = at::empty({count}, scalar_type<T>());
  nf4_dequantize(Nf4<T>{.codes = elements<std::uint8_t>(codes),
                        .absmax = elements<float>(absmax),
                        .out = elements<T>(out)});
  return out;
}

at::Tensor floats(std::span<const float> values) {
  return at::tensor(at::ArrayRef<float>(values.data(), values.size()));
}

TEST(Nf4, HasTheLevelsOfBitsandbytes) {
  const GoldenTensors golden("nf4/double.safetensors");
  EXPECT_TRUE(same_bits(floats(nf4_levels()), golden["weight.quant_map"]));
  EXPECT_TRUE(same_bits(floats(nested_levels()), golden["weight.nested_quant_map"]));
}

TEST(Nf4, PacksAsBitsandbytesDoes) {
  const GoldenTensors single("nf4/single.safetensors"), twice("nf4/double.safetensors");
  const Packed packed(single["weight"].flatten());
  EXPECT_TRUE(at::equal(packed.codes, single["packed"].flatten()));
  EXPECT_TRUE(same_bits(packed.absmax, single["weight.absmax"]));
  EXPECT_EQ(packed.offset, twice["nested_offset"].item<float>());
  EXPECT_TRUE(at::equal(packed.codes, twice["packed"].flatten()));
  EXPECT_TRUE(at::equal(packed.absmax_codes, twice["weight.absmax"]));
  EXPECT_TRUE(same_bits(packed.nested_absmax, twice["weight.nested_absmax"]));
}

TEST(Nf4, UnpacksAsBitsandbytesDoes) {
  const GoldenTensors single("nf4/single.safetensors"), twice("nf4/double.safetensors");
  const at::Tensor codes = single["packed"].flatten(), absmax = single["weight.absmax"];
  const std::int64_t count = 2 * codes.numel();
  EXPECT_TRUE(same_bits(unpacked<float>(codes, absmax, count), single["dequantized"].flatten()));
  EXPECT_TRUE(
      same_bits(unpacked<bf16>(codes, absmax, count), single["dequantized_bf16"].flatten()));
  const Packed packed(twice["weight"].flatten());
  EXPECT_TRUE(same_bits(packed.unpacked<float>(count), twice["dequantized"].flatten()));
  EXPECT_TRUE(same_bits(packed.unpacked<bf16>(count), twice["dequantized_bf16"].flatten()));
}

TEST(Nf4, EveryPairOfCodesIsLookedUp) {
  // All bytes, in whole blocks and, one byte short of them, in the last one.
  const at::Tensor codes = at::arange(256, at::kInt).to(at::kByte).flip(0);
  const at::Tensor absmax = normal<float>({8}, 6).abs();
  const at::Tensor order =
      at::stack({codes.div(16, "floor"), codes % 16}, 1).flatten().to(at::kLong);
  const at::Tensor expected =
      floats(nf4_levels()).index_select(0, order) * absmax.repeat_interleave(nf4_block);
  for (const std::int64_t count : {512, 510}) {
    const at::Tensor bytes = codes.narrow(0, 0, count / 2), part = expected.narrow(0, 0, count);
    EXPECT_TRUE(same_bits(unpacked<float>(bytes, absmax, count), part));
    EXPECT_TRUE(same_bits(unpacked<bf16>(bytes, absmax, count), part.to(at::kBFloat16)));
  }
}

TEST(Nf4, HasTheBitsOfItsComposition) {
  for (const std::int64_t count : {1, 130, (1 << 21) + 3}) {  // the last in two pieces
    const Packed packed(normal<float>({count}, 7));
    const composed::Nf4Maxima single{packed.absmax};
    const composed::Nf4Maxima twice{
        {}, packed.absmax_codes, packed.nested_absmax, at::tensor(packed.offset)};
    EXPECT_TRUE(same_bits(unpacked<bf16>(packed.codes, packed.absmax, count),
                          composed::nf4_dequantize(packed.codes, single, count, at::kBFloat16)));
    EXPECT_TRUE(same_bits(packed.unpacked<float>(count),
                          composed::nf4_dequantize(packed.codes, twice, count, at::kFloat)));
  }
}

TEST(Nf4, BreaksTiesDownwards) {
  // With a maximum of 1 the values are their own quotients. Two neighbours' middle is exact here.
  const at::Tensor levels = floats(nf4_levels());
  const at::Tensor middles = (levels.narrow(0, 0, 15) + levels.narrow(0, 1, 15)) / 2;
  at::Tensor values = at::zeros({nf4_block}, at::kFloat);
  values.narrow(0, 0, 15).copy_(middles);
  for (int i = 0; i < 15; ++i) {
    const float middle = middles[i].item<float>();
    values[16 + i] = std::nextafter(middle, 2.0f);
  }
  values[40] = -1.0f;
  const Packed packed(values);
  const auto codes = elements<std::uint8_t>(packed.codes);
  for (std::size_t i = 0; i < 15; ++i) {
    EXPECT_EQ(codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15, i);
    EXPECT_EQ(codes[8 + i / 2] >> (i % 2 == 0 ? 4 : 0) & 15, i + 1);
  }
}

TEST(Nf4, ALastBlockMayBeShortAndACountOdd) {
  for (const std::int64_t count : {1, 2, 63, 65, 131, 257 * 64 + 5}) {
    const at::Tensor values = normal<float>({count}, 3);
    const Packed packed(values);
    if (count % 2 != 0) {
      EXPECT_EQ(packed.codes[-1].item<int>() & 15, 7);
    }
    const at::Tensor wide = unpacked<float>(packed.codes, packed.absmax, count);
    // The widest gap between two levels, -1 and -0.696, is 0.304 of the block's maximum.
    const at::Tensor allowed = packed.absmax.repeat_interleave(nf4_block).narrow(0, 0, count);
    EXPECT_TRUE(((wide - values).abs() <= 0.1521 * allowed).all().item<bool>());
    const at::Tensor brain = unpacked<bf16>(packed.codes, packed.absmax, count);
    EXPECT_TRUE(same_bits(brain, wide.to(at::kBFloat16)));
    EXPECT_TRUE(
        same_bits(packed.unpacked<bf16>(count), packed.unpacked<float>(count).to(at::kBFloat16)));
  }
}

TEST(Nf4, DividesInAShortBlockAsBitsandbytesDoes) {
  // Quotients and products with the reciprocal that lie on two sides of the middle of two levels.
  const at::Tensor head =
      at::tensor({0x1.666666p-1f, -0x1.b5b39ep-2f, -0x1.e6f6e2p-3f, -0x1.8b6ba6p-4f});
  const Packed shorter(head), whole(at::cat({head, at::zeros({60}, at::kFloat)}));
  EXPECT_EQ(shorter.codes[0].item<int>(), 0xF2);
  EXPECT_EQ(shorter.codes[1].item<int>(), 0x46);
  EXPECT_EQ(whole.codes[0].item<int>(), 0xF1);
  EXPECT_EQ(whole.codes[1].item<int>(), 0x35);
}

TEST(Nf4, BlocksOfZerosStayZero) {
  const Packed packed(at::zeros({3 * nf4_block}, at::kFloat));
  EXPECT_TRUE((packed.codes == 0x77).all().item<bool>());
  EXPECT_TRUE((packed.absmax_codes == 0).all().item<bool>());
  EXPECT_TRUE((packed.unpacked<float>(3 * nf4_block) == 0).all().item<bool>());
}

TEST(Nf4, AnEmptyTensorIsNoError) {
  const Packed packed(at::empty({0}, at::kFloat));
  EXPECT_EQ(packed.offset, 0.0f);
  EXPECT_EQ(packed.unpacked<float>(0).numel(), 0);
}

TEST(Nf4, PiecesHaveTheBitsOfTheWhole) {
  const std::int64_t count = 3 * nested_block * nf4_block + 37, cut = nested_block * nf4_block;
  const at::Tensor values = normal<float>({count}, 4);
  const Packed whole(values);
  const at::Tensor out = at::empty({count - cut}, at::kFloat);
  nf4_dequantize(
      Nf4<float>{.codes = elements<std::uint8_t>(whole.codes).subspan(cut / 2),
                 .absmax_codes = elements<std::uint8_t>(whole.absmax_codes).subspan(nested_block),
                 .nested_absmax = elements<float>(whole.nested_absmax).subspan(1),
                 .offset = whole.offset,
                 .out = elements<float>(out)});
  EXPECT_TRUE(same_bits(out, whole.unpacked<float>(count).narrow(0, cut, count - cut)));
}

TEST(Nf4, FindsTheFirstNumberThatIsNotFinite) {
  std::vector<float> values(40001, 1e38f);
  EXPECT_EQ(first_non_finite(values), -1);
  values[40000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first_non_finite(values), 40000);
  values[20000] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_non_finite(values), 20000);
  EXPECT_EQ(first_non_finite({}), -1);
}

TEST(Nf4, GivesTheSameBitsForAnyThreadCount) {
  const at::Tensor values = normal<float>({600001}, 5).abs();
  expect_same_bits_for_any_thread_count([&] { return Packed(values).unpacked<bf16>(600001); });
  expect_same_bits_for_any_thread_count(
      [&] { return at::tensor(nested_offset(elements<float>(values))); });
}

TEST(Nf4, RefusesSizesThatDoNotFit) {
  const Packed packed(at::ones({2 * nf4_block}, at::kFloat));
  EXPECT_ANY_THROW(unpacked<float>(packed.codes, packed.absmax, 2 * nf4_block + 1));
  EXPECT_ANY_THROW(unpacked<float>(packed.codes, at::ones({1}, at::kFloat), 2 * nf4_block));
  EXPECT_ANY_THROW(packed.unpacked<float>(nf4_block));
}

}  // namespace
}  // namespace finetune::kernels::test::nf4_test
