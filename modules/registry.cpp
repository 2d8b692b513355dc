// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

#include "adapters/ia3/ia3.hpp"
#include "adapters/ia3/math.hpp"
#include "adapters/lora/lora.hpp"
#include "adapters/lora/math.hpp"
#include "adapters/qlora/qlora.hpp"
#include "formats/alpaca/alpaca.hpp"
#include "formats/chat/chat.hpp"
#include "formats/completion/completion.hpp"
#include "formats/labelled/labelled.hpp"
#include "formats/preference/preference.hpp"
#include "formats/text/text.hpp"
#include "formats/tokens/tokens.hpp"
#include "models/apertus/apertus.hpp"
#include "models/arcee/arcee.hpp"
#include "models/cohere/cohere.hpp"
#include "models/deepseek/deepseek.hpp"
#include "models/ernie/ernie.hpp"
#include "models/exaone/exaone.hpp"
#include "models/gemma/gemma.hpp"
#include "models/glm/glm.hpp"
#include "models/gpt/gpt.hpp"
#include "models/granite/granite.hpp"
#include "models/hunyuan/hunyuan.hpp"
#include "models/internlm/internlm.hpp"
#include "models/llama/llama.hpp"
#include "models/llama/llama4.hpp"
#include "models/minicpm/minicpm.hpp"
#include "models/minimax/minimax.hpp"
#include "models/mistral/mistral.hpp"
#include "models/nemotron/nemotron.hpp"
#include "models/olmo/olmo.hpp"
#include "models/phi/phi.hpp"
#include "models/qwen/qwen.hpp"
#include "models/seed/seed.hpp"
#include "models/smollm/smollm.hpp"
#include "models/starcoder/starcoder.hpp"
#include "optimizers/adafactor/kind.hpp"
#include "optimizers/adamw/kind.hpp"
#include "optimizers/adamw8bit/kind.hpp"
#include "optimizers/lion/kind.hpp"
#include "optimizers/lion8bit/kind.hpp"
#include "optimizers/muon/kind.hpp"
#include "optimizers/schedule_free/kind.hpp"
#include "templates/templates.hpp"

namespace finetune::modules {

// Alphabetical, one line a module. A list and not self-registration: it is the same on every rank.
const train::Registry& registry() {
  static const train::Registry all{.adapters =
                                       {
                                           adapters::ia3::adapter(&adapters::ia3::math()),
                                           adapters::lora::adapter(&adapters::lora::math()),
                                           adapters::qlora::adapter(&adapters::lora::math()),
                                       },
                                   .families =
                                       {
                                           models::apertus::apertus(),
                                           models::arcee::arcee(),
                                           models::cohere::cohere(),
                                           models::cohere::cohere2(),
                                           models::deepseek::deepseek_v2(),
                                           models::deepseek::deepseek_v3(),
                                           models::ernie::ernie4_5(),
                                           models::ernie::ernie4_5_moe(),
                                           models::exaone::exaone4(),
                                           models::gemma::gemma(),
                                           models::gemma::gemma2(),
                                           models::gemma::gemma3(),
                                           models::gemma::gemma3_text(),
                                           models::gemma::gemma4(),
                                           models::gemma::gemma4_text(),
                                           models::glm::glm(),
                                           models::glm::glm4(),
                                           models::glm::glm4_moe(),
                                           models::glm::glm4_moe_lite(),
                                           models::gpt::gpt2(),
                                           models::gpt::gpt_neox(),
                                           models::gpt::gpt_oss(),
                                           models::granite::granite(),
                                           models::granite::granitemoe(),
                                           models::granite::granitemoeshared(),
                                           models::hunyuan::hunyuan_v1_dense(),
                                           models::hunyuan::hunyuan_v1_moe(),
                                           models::internlm::internlm3(),
                                           models::llama::family(),
                                           models::llama::llama4(),
                                           models::llama::llama4_text(),
                                           models::minicpm::minicpm(),
                                           models::minimax::minimax_m2(),
                                           models::mistral::mistral(),
                                           models::mistral::ministral3(),
                                           models::mistral::mistral3(),
                                           models::mistral::mixtral(),
                                           models::nemotron::nemotron(),
                                           models::nemotron::nemotron_h(),
                                           models::olmo::olmo2(),
                                           models::olmo::olmo3(),
                                           models::olmo::olmoe(),
                                           models::phi::phi3(),
                                           models::qwen::qwen1(),
                                           models::qwen::mimo(),
                                           models::qwen::qwen2(),
                                           models::qwen::qwen2_moe(),
                                           models::qwen::qwen3(),
                                           models::qwen::qwen3_5(),
                                           models::qwen::qwen3_5_moe(),
                                           models::qwen::qwen3_5_text(),
                                           models::qwen::qwen3_moe(),
                                           models::qwen::qwen3_next(),
                                           models::qwen::qwen3_vl(),
                                           models::qwen::qwen3_vl_moe(),
                                           models::seed::seed_oss(),
                                           models::smollm::smollm3(),
                                           models::starcoder::starcoder2(),
                                       },
                                   .formats =
                                       {
                                           formats::alpaca::format(),
                                           formats::chat::format(),
                                           formats::completion::format(),
                                           formats::chat::messages(),
                                           formats::chat::qwen(),
                                           formats::chat::sharegpt(),
                                           formats::labelled::format(),
                                           formats::preference::format(),
                                           formats::text::format(),
                                           formats::tokens::documents(),
                                           formats::tokens::format(),
                                       },
                                   .optimizers =
                                       {
                                           optimizers::adafactor::kind(),
                                           optimizers::adamw::kind(),
                                           optimizers::adamw8bit::kind(),
                                           optimizers::lion::kind(),
                                           optimizers::lion8bit::kind(),
                                           optimizers::muon::kind(),
                                           optimizers::schedule_free::kind(),
                                       },
                                   .templates = templates::all()};
  return all;
}

}  // namespace finetune::modules
