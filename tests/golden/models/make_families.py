#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tiny models of many families with random weights, and what transformers computes with them.

    python make_families.py [NAME ...]        # next to this file, and ../cases; made with transformers 5.24 and torch 2.11

models/NAME is a Hugging Face folder as save_pretrained writes it. cases/NAME.safetensors has input_ids and labels [2, 32],
logits [2, 32, V], loss (mean over the targets), grad.TENSOR for every tensor of the folder that is trained here, and
generated_ids [2, 24]: 8 tokens of the input and 16 greedy ones. All in fp32 with plain attention, on one thread.
Of some draws the first is taken in which no greedy choice is a near tie.
"""
import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
VOCABULARY, BATCH, LENGTH, PROMPT, NEW = 512, 2, 32, 8, 16
SMALL = dict(
    vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=512, tie_word_embeddings=False,
    bos_token_id=None, eos_token_id=None, pad_token_id=None,
)
SEES = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)

# name: (class, settings that differ from SMALL, seed). `text`: they are of its text part.
FAMILIES = {
    "llama_biased": ("LlamaForCausalLM", dict(attention_bias=True, mlp_bias=True), 1),
    "ernie4_5": ("Ernie4_5ForCausalLM", dict(), 2),
    "exaone4": ("Exaone4ForCausalLM", dict(sliding_window=8, num_hidden_layers=3,
                layer_types=["sliding_attention", "sliding_attention", "full_attention"]), 3),
    "glm": ("GlmForCausalLM", dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)), 4),
    "glm4": ("Glm4ForCausalLM", dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)), 5),
    "granite": ("GraniteForCausalLM", dict(embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=2.0,
                attention_multiplier=0.25), 6),
    "mistral3": ("Mistral3ForConditionalGeneration", dict(text=True, model_type="mistral"), 7),
    "olmo2": ("Olmo2ForCausalLM", dict(), 8),
    "olmo3": ("Olmo3ForCausalLM", dict(sliding_window=8, layer_types=["sliding_attention", "full_attention"], rope_parameters={
                "full_attention": dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=16,
                                       beta_fast=2.0, beta_slow=1.0, attention_factor=1.2),
                "sliding_attention": dict(rope_type="default", rope_theta=10000.0)}), 9),
    "olmoe": ("OlmoeForCausalLM", dict(num_experts=4, num_experts_per_tok=2, norm_topk_prob=False), 15),
    "phi3": ("Phi3ForCausalLM", dict(original_max_position_embeddings=256, rope_parameters=dict(
                rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                short_factor=[1.0, 1.5, 2.0], long_factor=[2.0, 3.0, 4.0])), 10),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", dict(text=True, rope_parameters=dict(
                rope_type="default", rope_theta=500000.0, mrope_section=[2, 1, 1], mrope_interleaved=True)), 11),
    "qwen3_vl_moe": ("Qwen3VLMoeForConditionalGeneration", dict(text=True, num_experts=4, num_experts_per_tok=2,
                moe_intermediate_size=24, rope_parameters=dict(
                rope_type="default", rope_theta=500000.0, mrope_section=[2, 1, 1], mrope_interleaved=True)), 12),
    "seed_oss": ("SeedOssForCausalLM", dict(residual_dropout=0.0, attention_dropout=0.0), 13),
    "smollm3": ("SmolLM3ForCausalLM", dict(no_rope_layers=[1, 0]), 14),
    "arcee": ("ArceeForCausalLM", dict(), 16),
    "nemotron": ("NemotronForCausalLM", dict(), 17),
    "starcoder2": ("Starcoder2ForCausalLM", dict(sliding_window=8, attention_dropout=0.0, residual_dropout=0.0,
                embedding_dropout=0.0), 18),
    "cohere": ("CohereForCausalLM", dict(logit_scale=0.25), 19),
    "cohere2": ("Cohere2ForCausalLM", dict(logit_scale=0.25, sliding_window=8,
                layer_types=["sliding_attention", "full_attention"]), 20),
    "gemma": ("GemmaForCausalLM", dict(tie_word_embeddings=True), 21),
    "apertus": ("ApertusForCausalLM", dict(rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0,
                low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64), dtype=torch.float32), 29),
    "qwen2_moe": ("Qwen2MoeForCausalLM", dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                shared_expert_intermediate_size=40, mlp_only_layers=[0], num_hidden_layers=3, norm_topk_prob=False), 30),
    "gemma2": ("Gemma2ForCausalLM", dict(sliding_window=8, query_pre_attn_scalar=16, attn_logit_softcapping=2.0,
                final_logit_softcapping=3.0, layer_types=["sliding_attention", "full_attention"]), 28),
    "gemma3_text": ("Gemma3ForCausalLM", dict(sliding_window=8, query_pre_attn_scalar=16,
                layer_types=["sliding_attention", "full_attention"], rope_parameters={
                "full_attention": dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                "sliding_attention": dict(rope_type="default", rope_theta=10000.0)}), 22),
    "gemma3": ("Gemma3ForConditionalGeneration", dict(text=True, sliding_window=8, query_pre_attn_scalar=8,
                layer_types=["full_attention", "sliding_attention"]), 23),
    "hunyuan_v1_dense": ("HunYuanDenseV1ForCausalLM", dict(rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0,
                alpha=10.0, factor=1.0)), 24),
    "ministral3": ("Ministral3ForCausalLM", dict(sliding_window=None, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0,
                factor=8.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
                llama_4_scaling_beta=0.3)), 25),
    "internlm3": ("LlamaForCausalLM", dict(attention_bias=True, mlp_bias=True), 26),
    "minicpm": ("GraniteForCausalLM", dict(embedding_multiplier=3.0, residual_multiplier=1.4 / 2 ** 0.5, logits_scaling=2.0,
                attention_multiplier=8 ** -0.5, tie_word_embeddings=True), 27),
    "gpt_oss": ("GptOssForCausalLM", dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=64, attention_bias=True,
                sliding_window=8, layer_types=["sliding_attention", "full_attention"], swiglu_limit=1.0, rope_parameters=dict(
                rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=16, beta_fast=2.0,
                beta_slow=1.0, truncate=False)), 31),
    "glm4_moe": ("Glm4MoeForCausalLM", dict(n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, num_hidden_layers=3,
                moe_intermediate_size=24, n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=2.5, use_qk_norm=True,
                attention_bias=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)), 32),
    "qwen3_5": ("Qwen3_5ForConditionalGeneration", dict(text=True, num_hidden_layers=3, head_dim=16, rope_parameters=dict(
                rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1], mrope_interleaved=True),
                layer_types=["linear_attention", "linear_attention", "full_attention"], linear_num_key_heads=2,
                linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4), 34),
    "qwen3_5_moe": ("Qwen3_5MoeForConditionalGeneration", dict(text=True, num_experts=4, num_experts_per_tok=2,
                moe_intermediate_size=24, shared_expert_intermediate_size=40, head_dim=16, rope_parameters=dict(
                rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1], mrope_interleaved=True),
                layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=2,
                linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4), 36),
    "qwen3_next": ("Qwen3NextForCausalLM", dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                shared_expert_intermediate_size=40, mlp_only_layers=[0], norm_topk_prob=True, head_dim=16, rope_parameters=dict(
                rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25), layer_types=["linear_attention", "full_attention"],
                linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
                linear_conv_kernel_dim=3), 35),
    "minimax_m2": ("MiniMaxM2ForCausalLM", dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=24, rope_parameters=dict(
                rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)), 33),
    "deepseek_v2": ("DeepseekV2ForCausalLM", dict(head_dim=4, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4,
                v_head_dim=12, num_key_value_heads=4, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
                topk_method="group_limited_greedy", num_hidden_layers=3, moe_intermediate_size=24, n_shared_experts=2,
                first_k_dense_replace=1, routed_scaling_factor=2.0), 34),
    "deepseek_v3": ("DeepseekV3ForCausalLM", dict(head_dim=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4,
                v_head_dim=8, num_key_value_heads=4, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
                num_hidden_layers=3, moe_intermediate_size=24, first_k_dense_replace=1, routed_scaling_factor=2.5,
                rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=32.0, original_max_position_embeddings=16,
                beta_fast=2.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)), 35),
    "glm4_moe_lite": ("Glm4MoeLiteForCausalLM", dict(q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4,
                v_head_dim=16, head_dim=4, num_key_value_heads=4, n_routed_experts=8, num_experts_per_tok=3, num_hidden_layers=3,
                moe_intermediate_size=24, rope_interleave=False), 36),
    "gemma4_text": ("Gemma4ForCausalLM", dict(tie_word_embeddings=True, num_hidden_layers=3, head_dim=8, global_head_dim=16,
                num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0,
                sliding_window=8, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                final_logit_softcapping=3.0), 42),
    # As E2B: layers have inputs, the last three read the keys of the two before, and are wider.
    "gemma4_e2b": ("Gemma4ForCausalLM", dict(tie_word_embeddings=True, num_hidden_layers=6, head_dim=8, global_head_dim=16,
                num_key_value_heads=1, hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCABULARY, num_kv_shared_layers=3,
                use_double_wide_mlp=True, sliding_window=8, layer_types=["sliding_attention", "sliding_attention", "full_attention",
                "sliding_attention", "sliding_attention", "full_attention"], final_logit_softcapping=3.0), 43),
    # As 26B-A4B: experts beside a dense part.
    "gemma4_a4b": ("Gemma4ForCausalLM", dict(tie_word_embeddings=True, num_hidden_layers=3, head_dim=8, global_head_dim=16,
                num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0,
                enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=24, sliding_window=8,
                layer_types=["sliding_attention", "sliding_attention", "full_attention"], final_logit_softcapping=3.0), 44),
    "gpt_neox": ("GPTNeoXForCausalLM", dict(num_key_value_heads=4), 40),
    "gpt2": ("GPT2LMHeadModel", dict(num_key_value_heads=4, n_inner=48, max_position_embeddings=256, tie_word_embeddings=True), 41),
    "ernie4_5_moe": ("Ernie4_5_MoeForCausalLM", dict(moe_num_experts=8, moe_k=3, moe_intermediate_size=24, moe_num_shared_experts=2,
                num_hidden_layers=3), 37),
    "hunyuan_v1_moe": ("HunYuanMoEV1ForCausalLM", dict(num_experts=4, moe_topk=2, rope_parameters=dict(rope_type="dynamic",
                rope_theta=10000.0, alpha=10.0, factor=1.0)), 38),
    "granitemoe": ("GraniteMoeForCausalLM", dict(num_local_experts=4, num_experts_per_tok=2, embedding_multiplier=3.0,
                residual_multiplier=0.5, logits_scaling=2.0, attention_multiplier=0.25), 39),
    "granitemoeshared": ("GraniteMoeSharedForCausalLM", dict(num_local_experts=4, num_experts_per_tok=2, embedding_multiplier=3.0,
                residual_multiplier=0.5, logits_scaling=2.0, attention_multiplier=0.25, shared_intermediate_size=40), 40),
    "nemotron_h": ("NemotronHForCausalLM", dict(layers_block_type=["linear_attention", "moe", "full_attention", "mlp", "linear_attention"],
                mamba_num_heads=4, mamba_head_dim=10, n_groups=2, ssm_state_size=8, conv_kernel=4, chunk_size=8, time_step_min=0.3,
                time_step_limit=[0.3, float("inf")], n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
                moe_intermediate_size=24, moe_shared_expert_intermediate_size=40, routed_scaling_factor=2.5), 37),
}
# Families whose code comes with the models compute what another one does, which is told in their own words.
RETOLD = {
    "internlm3": dict(model_type="internlm3", architectures=["InternLM3ForCausalLM"], qkv_bias=True, bias=True,
                      attention_bias=None, mlp_bias=None),
    "minicpm": dict(model_type="minicpm", architectures=["MiniCPMForCausalLM"], scale_emb=3, scale_depth=1.4, dim_model_base=16,
                    embedding_multiplier=None, residual_multiplier=None, logits_scaling=None, attention_multiplier=None),
}
WEIGHTS_LESS_ONE = ("gemma", "qwen3_5", "qwen3_next")  # what files have of the weights of their norms
FOREIGN = ("vision", "visual", "multi_modal")
CONSTANT = "e_score_correction_bias"  # which no gradient changes
LAYER_SCALE = "layer_scalar"  # nor this


def configuration(name):
    cls, settings, _ = FAMILIES[name]
    settings = dict(SMALL, **settings)
    model_class = getattr(transformers, cls)
    config_class = model_class.config_class
    if not settings.pop("text", False):
        return model_class, config_class(**settings)
    sees = dict(SEES)
    if name.startswith("qwen"):
        sees = dict(hidden_size=16, intermediate_size=16, depth=1, num_heads=2, patch_size=2, out_hidden_size=32,
                    deepstack_visual_indexes=[0], num_position_embeddings=16)
    return model_class, config_class(text_config=settings, vision_config=sees, tie_word_embeddings=False)


def retell(name, path):
    config = json.loads(path.read_text())
    config.update(RETOLD[name])
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}, indent=2, sort_keys=True) + "\n")


def embedding_scale(name, config):
    return config.hidden_size**0.5 if name in ("gemma", "gemma4_text", "gemma4_e2b", "gemma4_a4b") else getattr(config, "embedding_multiplier", 1.0)


def draw(model, seed, centre=1.0, embedding=0.7):
    """Far enough from a fresh model's weights that every tensor matters."""
    g = torch.Generator().manual_seed(20261126 + seed)
    with torch.no_grad():
        for key, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g)
            if key.endswith(CONSTANT):
                p.copy_(0.05 * noise)  # among probabilities
            elif p.dim() == 1:
                p.copy_(centre * (("norm" in key or "ln_" in key) and "bias" not in key) + 0.2 * noise)
            else:
                p.copy_(noise * (embedding if any(part in key for part in ("embed", "wte", "wpe")) else p.shape[-1] ** -0.5))
        for key, b in model.named_buffers():
            if key.endswith(CONSTANT):
                b.copy_(0.2 * torch.randn(b.shape, generator=g))
            if key.endswith(LAYER_SCALE):
                b.copy_(1 + 0.3 * torch.randn(b.shape, generator=g))


def joined(tensors):
    """Experts in one tensor, [E, 2 F, D] and [E, D, F], as Qwen 3.5's folders have them; transformers saves each by itself."""
    def matrices(of, part):
        return torch.stack([tensors[f"{of}{i}.{part}_proj.weight"] for i in range(4)])

    experts = {k[:k.index(".experts.") + len(".experts.")] for k in tensors if ".mlp.experts." in k}
    rest = {k: v for k, v in tensors.items() if ".mlp.experts." not in k}
    for of in sorted(experts):
        rest[of + "gate_up_proj"] = torch.cat([matrices(of, "gate"), matrices(of, "up")], 1)
        rest[of + "down_proj"] = matrices(of, "down")
    return rest


def as_published(model, tensors):
    """Experts as Qwen's folders have them, [E, D, 2 F] and [E, F, D]; transformers 5 saves them the other way round."""
    if model.config.model_type == "gpt_oss":
        return tensors  # which are like that
    if model.config.model_type == "qwen3_5_moe":
        return joined(tensors)
    return {k: v.transpose(1, 2).contiguous() if ".mlp.experts." in k and v.dim() == 3 else v for k, v in tensors.items()}


def as_saved(model):
    """Parameters under the names and shapes of the folder."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size="1GB")
        return as_published(model, load_file(pathlib.Path(folder) / "model.safetensors"))


def gradients(model):
    parameters = list(model.parameters()) + list(model.buffers())  # of which the second have none
    values = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for p in parameters:
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
        grads = as_saved(model)
        for p, value in zip(parameters, values):
            p.copy_(value)
    return {k: v for k, v in grads.items() if not any(part in k for part in (*FOREIGN, CONSTANT, LAYER_SCALE))}


def greedy(model, tokens):
    """The tokens with NEW more, and how near the nearest choice was."""
    margin = float("inf")
    with torch.no_grad():
        for _ in range(NEW):
            best = model(input_ids=tokens).logits[:, -1].topk(2)
            margin = min(margin, (best.values[:, 0] - best.values[:, 1]).min().item())
            tokens = torch.cat([tokens, best.indices[:, :1]], 1)
    return tokens, margin


def write(name):
    model_class, config = configuration(name)
    config._attn_implementation = "eager"
    config.eos_token_id = None  # some classes have their own
    model = model_class(config).eval().float()
    model.set_attn_implementation("eager")
    seed = FAMILIES[name][2]
    g = torch.Generator().manual_seed(77 + seed)
    ids = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=g)
    for attempt in range(100):
        is_less_one = name == "nemotron" or (name.startswith(WEIGHTS_LESS_ONE) and not name.startswith("gemma4"))
        draw(model, seed + 100 * attempt, 0.0 if is_less_one else 1.0,
             0.7 / embedding_scale(name, config) if config.tie_word_embeddings else 0.7)
        tokens, margin = greedy(model, ids[:, :PROMPT])
        if margin > 4e-3:
            break
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size="1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(as_saved(model), folder / "model.safetensors", metadata={"format": "pt"})
    if name in RETOLD:
        retell(name, folder / "config.json")
    labels = ids.clone()
    labels[0, :10] = -100
    labels[1, -5:] = -100
    labels[1, 7] = -100
    result = model(input_ids=ids, labels=labels)
    result.loss.backward()
    grads = gradients(model)
    model.zero_grad()
    tensors = {"grad." + k: v for k, v in grads.items()}
    tensors |= dict(input_ids=ids, labels=labels, logits=result.logits, loss=result.loss, generated_ids=tokens)
    save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, HERE.parent / "cases" / f"{name}.safetensors")
    print(f"{name}: loss {result.loss.item():.4f}, logits {result.logits.std().item():.2f}, margin {margin:.4f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in sys.argv[1:] or FAMILIES:
        write(each)
