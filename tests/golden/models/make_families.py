#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tiny models of many families with random weights, and what transformers computes with them.

    python make_families.py [NAME ...]        # next to this file, and ../cases; made with transformers 5.24 and torch 2.11

models/NAME has the configuration as save_pretrained writes it, and weights.json, which says how its weights are drawn
(../drawn.py). cases/NAME.safetensors has input_ids and labels [2, 32], loss (mean over the targets), generated_ids [2, 24]: 8
tokens of the input and 16 greedy ones, and what is kept of
- logits [2, 32, V]: sixteen random projections of each token's, and in logits.scale the two numbers that follow;
- grad.TENSOR for every tensor of the folder that is trained here: its largest entry, fp64_distance, sixteen random projections.
All in fp32 with plain attention, on one thread. Of some draws the first is taken in which no greedy choice is a near tie and
every fp64_distance is below WELL_CONDITIONED, or the one whose largest is least.

fp64_distance: the largest difference between fp32 and fp64, as part of the largest entry. One run shows one sum of roundings, and
another processor's another one: so it is the largest of DRAWS runs with weights that differ by a thousandth, each beside fp64 of
the same weights.
"""
import json
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from reference import Layout, distances, drawn, fill, greedy, in_double, largest, run

HERE = pathlib.Path(__file__).resolve().parent
ATTEMPTS, MARGIN, WELL_CONDITIONED = 40, 4e-3, 5e-6
VOCABULARY, BATCH, LENGTH, PROMPT = 512, 2, 32, 8
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
# Whose configurations older versions wrote; they are read, and stay.
CONFIGURED = {"llama": 51, "llama4": 52, "llama_tied": 53, "mistral": 54, "qwen2": 55, "qwen3": 56, "qwen3_moe": 57}
KEPT = ("llama",)  # whose weights, input and labels are files: ../train was computed with them


def configuration(name):
    if name in CONFIGURED:
        config = transformers.AutoConfig.from_pretrained(HERE / name)
        return getattr(transformers, config.architectures[0]), config
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


def new_model(name):
    model_class, config = configuration(name)
    config._attn_implementation = config._experts_implementation = "eager"  # other experts know no fp64
    config.eos_token_id = None  # some classes have their own
    model = model_class(config).eval()
    model.set_attn_implementation("eager")
    return model


def batch(name, seed):
    if name in KEPT:
        case = load_file(HERE.parent / "cases" / f"{name}.safetensors")
        return case["input_ids"], case["labels"]
    ids = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(77 + seed))
    labels = ids.clone()
    labels[0, :10] = labels[1, -5:] = labels[1, 7] = -100
    return ids, labels


def recipes(name, layout, seed, config):
    """Ways to draw the weights, one after the other."""
    is_less_one = name == "nemotron" or (name.startswith(WEIGHTS_LESS_ONE) and not name.startswith("gemma4"))
    embedding = 0.7
    if config.tie_word_embeddings:
        embedding = 0.08 if name in CONFIGURED else 0.7 / embedding_scale(name, config)
    index = HERE / name / "model.safetensors.index.json"
    files = json.loads(index.read_text())["weight_map"] if index.exists() else {}
    for attempt in range(ATTEMPTS):
        yield layout.recipe(20261126 + seed + 100 * attempt, 0 if is_less_one else 1, embedding, files)


def choose(name, model, layout, seed, ids, labels):
    """How the weights are drawn, the weights in the model's order, {NAME: fp64_distance}, and the greedy tokens."""
    with in_double():
        wide = new_model(name).double()
    best = None
    for recipe in [None] if name in KEPT else recipes(name, layout, seed, model.config):
        tensors = load_file(HERE / name / "model.safetensors") if recipe is None else drawn.tensors(recipe)
        flat = layout.as_in_model({k: np.asarray(v) for k, v in tensors.items()})
        fill(model, flat)
        tokens, margin = greedy(model, ids[:, :PROMPT])
        if margin <= MARGIN and recipe:
            continue
        distance = distances(model, wide, layout, flat, ids, labels)
        if best is None or max(distance.values()) < max(best[2].values()):
            best = recipe, flat, distance, tokens
        if max(best[2].values()) < WELL_CONDITIONED:
            break
    fill(model, best[1])
    return best


def write_model(name, model, recipe):
    folder = HERE / name
    if name not in CONFIGURED:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        model.config.save_pretrained(folder)
        if name in RETOLD:
            retell(name, folder / "config.json")
    if recipe:
        for file in folder.glob("*.safetensors"):
            file.unlink()
        (folder / "weights.json").write_text(drawn.text(recipe))


def write(name):
    seed = CONFIGURED[name] if name in CONFIGURED else FAMILIES[name][2]
    model = new_model(name).float()
    layout = Layout(model)
    ids, labels = batch(name, seed)
    recipe, _, distance, tokens = choose(name, model, layout, seed, ids, labels)
    write_model(name, model, recipe)
    result = run(model, layout, ids, labels)
    case = dict(input_ids=ids, labels=labels, generated_ids=tokens, loss=result["loss"],
                logits=drawn.project(result["logits"]), **{"logits.scale": [largest(result["logits"]), distance["logits"]]})
    for key, values in result.items():
        if key.startswith("grad."):
            case[key] = [largest(values), distance[key], *drawn.project(values.ravel())]
    save_file({k: v if torch.is_tensor(v) else torch.from_numpy(np.array(v, dtype=np.float32)) for k, v in case.items()},
              HERE.parent / "cases" / f"{name}.safetensors")
    far = max((v, k) for k, v in distance.items())
    print(f"{name}: loss {result['loss']:.4f}, logits {result['logits'].std():.2f}, from fp64 {far[0]:.1e} {far[1]}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for each in sys.argv[1:] or [*CONFIGURED, *FAMILIES]:
        write(each)
