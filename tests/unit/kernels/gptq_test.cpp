// SPDX-License-Identifier: Apache-2.0
#include "kernels/gptq.hpp"

#include "kernels/composed_packed.hpp"
#include "unit/kernels/golden_tensors.hpp"

namespace finetune::kernels::test::gptq_test {
namespace {

/// A packed layer of random words.
struct Layer {
  std::int64_t inputs, outputs, bits = 4, offset = 1;
  at::Tensor qweight, qzeros, scales, g_idx;

  Layer(std::int64_t num_inputs, std::int64_t num_outputs, std::int64_t groups,
        std::int64_t num_bits = 4)
      : inputs(num_inputs),
        outputs(num_outputs),
        bits(num_bits),
        qweight(words(inputs / a_word(), outputs, 1)),
        qzeros(words(groups, outputs / a_word(), 2)),
        scales((normal<float>({groups, outputs}, 3) * 0.01).to(at::kHalf)),
        g_idx(at::arange(inputs, at::kLong).div(inputs / groups, "floor").to(at::kInt)) {}

  explicit Layer(const std::string& name) : Layer(384, 64, 3) {
    const GoldenTensors golden("gptq/" + name + ".safetensors");
    offset = name == "v2" ? 0 : 1;
    qweight = golden["qweight"];
    qzeros = golden["qzeros"];
    scales = golden["scales"];
    g_idx = golden["g_idx"];
  }

  std::int64_t a_word() const { return 32 / bits; }

  static at::Tensor words(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    return at::randint(-(1LL << 31), 1LL << 31, {rows, columns}, generator,
                       at::TensorOptions(at::kLong))
        .to(at::kInt);
  }

  /// W^T in the first columns of a wider matrix of sevens.
  template <class T>
  at::Tensor unpacked(std::int64_t wider = 0) const {
    const at::Tensor out = at::full({inputs, outputs + wider}, 7, scalar_type<T>());
    gptq_dequantize(Gptq<T>{.qweight = elements<std::int32_t>(qweight),
                            .qzeros = elements<std::int32_t>(qzeros),
                            .scales = elements<f16>(scales),
                            .g_idx = elements<std::int32_t>(g_idx),
                            .inputs = inputs,
                            .outputs = outputs,
                            .stored_zero_offset = offset,
                            .out = elements<T>(out).data(),
                            .out_stride = outputs + wider,
                            .bits = bits});
    return out;
  }

  /// The definition, one code after the other.
  at::Tensor expected() const {
    const at::Tensor out = at::empty({inputs, outputs}, at::kFloat);
    const auto code = [&](const at::Tensor& words, std::int64_t word, std::int64_t i) {
      return static_cast<int>(elements<std::uint32_t>(words)[static_cast<std::size_t>(word)] >>
                                  (bits * (i % a_word())) &
                              ((1u << bits) - 1));
    };
    for (std::int64_t i = 0; i < inputs; ++i) {
      const std::int64_t g = g_idx[i].item<std::int64_t>();
      for (std::int64_t o = 0; o < outputs; ++o) {
        const int zero =
            code(qzeros, g * (outputs / a_word()) + o / a_word(), o) + static_cast<int>(offset);
        const int difference = code(qweight, i / a_word() * outputs + o, i) - zero;
        out[i][o] = scales[g][o].item<float>() * static_cast<float>(difference);
      }
    }
    return out;
  }
};

TEST(Gptq, UnpacksEveryMannerOfFile) {
  for (const char* name : {"g128", "actorder", "sym", "v2"}) {
    SCOPED_TRACE(name);
    const at::Tensor expected =
        GoldenTensors(std::string("gptq/") + name + ".safetensors")["weight"].t().contiguous();
    const Layer layer(name);
    EXPECT_TRUE(same_bits(layer.unpacked<float>(), expected));
    EXPECT_TRUE(same_bits(layer.unpacked<bf16>(), expected.to(at::kBFloat16)));
  }
}

TEST(Gptq, UnpacksGroupsOfEverySize) {
  for (const std::int64_t groups : {1, 2, 4, 8}) {  // of 256, 128, 64 and 32
    const Layer layer(256, 24, groups);
    EXPECT_TRUE(same_bits(layer.unpacked<float>(), layer.expected()));
  }
}

TEST(Gptq, UnpacksEightBits) {
  for (const std::int64_t offset : {0, 1}) {
    Layer layer(132, 268, 3, 8);  // words of four; more than one tile of outputs, and part of one
    layer.g_idx = integers(3, 132, 5).to(at::kInt);
    layer.offset = offset;
    EXPECT_TRUE(same_bits(layer.unpacked<float>(), layer.expected()));
    EXPECT_TRUE(same_bits(layer.unpacked<bf16>(), layer.expected().to(at::kBFloat16)));
    at::Tensor out = at::empty({132, 268}, at::kFloat);
    composed::gptq_dequantize_(
        out, {layer.qweight, layer.qzeros, layer.scales, layer.g_idx, offset, layer.bits});
    EXPECT_TRUE(same_bits(out, layer.expected()));
  }
  EXPECT_ANY_THROW(Layer(64, 64, 1, 16).unpacked<float>());
}

TEST(Gptq, UnpacksInputsInAnyOrder) {
  Layer layer(64, 24, 8);
  layer.g_idx = integers(8, 64, 5).to(at::kInt);
  EXPECT_TRUE(same_bits(layer.unpacked<float>(), layer.expected()));
}

TEST(Gptq, HasTheBitsOfItsComposition) {
  Layer layer(1024, 2064, 8);  // more than 2^21 elements
  layer.g_idx = integers(8, 1024, 5).to(at::kInt);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::Tensor wide = at::full({1024, 2072}, 7, type), out = wide.narrow(1, 0, 2064);
    composed::gptq_dequantize_(
        out, {layer.qweight, layer.qzeros, layer.scales, layer.g_idx, layer.offset});
    EXPECT_TRUE(
        same_bits(wide, type == at::kFloat ? layer.unpacked<float>(8) : layer.unpacked<bf16>(8)));
  }
}

TEST(Gptq, AStoredFifteenMeansSixteen) {
  Layer layer(8, 8, 1);
  layer.qweight.zero_();
  layer.qzeros.fill_(-1);
  layer.scales.fill_(1);
  EXPECT_TRUE((layer.unpacked<float>() == -16).all().item<bool>());
  layer.offset = 0;
  EXPECT_TRUE((layer.unpacked<float>() == -15).all().item<bool>());
}

TEST(Gptq, LeavesWhatLiesBetweenTheRowsAlone) {
  const Layer layer(32, 264, 2);  // more than one tile of outputs, and part of one
  const at::Tensor wide = layer.unpacked<float>(8);
  EXPECT_TRUE(at::equal(wide.narrow(1, 0, 264), layer.unpacked<float>()));
  EXPECT_TRUE(same_bits(layer.unpacked<float>(), layer.expected()));
  EXPECT_TRUE((wide.narrow(1, 264, 8) == 7).all().item<bool>());
}

TEST(Gptq, GivesTheSameBitsForAnyThreadCount) {
  const Layer layer(512, 272, 4);
  expect_same_bits_for_any_thread_count([&] { return layer.unpacked<bf16>(); });
}

TEST(Gptq, FindsAGroupThatIsNotThere) {
  Layer layer(64, 8, 2);
  EXPECT_EQ(first_bad_group(elements<std::int32_t>(layer.g_idx), 2), -1);
  for (const std::int32_t bad : {2, -1}) {
    layer.g_idx[40] = bad;
    EXPECT_EQ(first_bad_group(elements<std::int32_t>(layer.g_idx), 2), 40);
    EXPECT_ANY_THROW(layer.unpacked<float>());
  }
}

TEST(Gptq, RefusesSizesThatDoNotFit) {
  for (at::Tensor Layer::*const tensor :
       {&Layer::qweight, &Layer::qzeros, &Layer::scales, &Layer::g_idx}) {
    Layer layer(64, 16, 2);
    layer.*tensor = (layer.*tensor).flatten().narrow(0, 1, (layer.*tensor).numel() - 1);
    EXPECT_ANY_THROW(layer.unpacked<float>());
  }
  Layer layer(64, 16, 2);
  EXPECT_ANY_THROW(layer.unpacked<float>(-8));
}

}  // namespace
}  // namespace finetune::kernels::test::gptq_test
