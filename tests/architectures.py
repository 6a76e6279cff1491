"""Tiny random models of all causal language models of transformers, from their configurations, and what each computes.

A configuration is the default of its kind with every size that has a name in SMALL made small, and the exceptions of
CHANGES. The truth about a row is the forward pass of transformers over that row alone.
"""

import contextlib
from pathlib import Path
from typing import Any

import tiny
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

KINDS = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
CONTEXT, WINDOW, VOCABULARY = 64, 6, 320

SIZES = {
    32: "hidden_size d_model n_embd dim embedding_dim lru_width word_embed_proj_dim",
    48: "intermediate_size ffn_dim d_inner dff n_inner decoder_ffn_dim encoder_ffn_dim",
    2: "num_hidden_layers n_layer n_layers num_layers decoder_layers num_key_value_heads num_experts_per_tok "
    "moe_topk moe_k linear_num_key_heads",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads attention_heads "
    "num_experts num_local_experts n_routed_experts moe_num_experts qk_rope_head_dim linear_num_value_heads "
    "index_n_heads",
    8: "head_dim index_head_dim rotary_dim hidden_size_per_layer_input qk_nope_head_dim v_head_dim "
    "state_size mamba_d_state mamba_d_head mamba_n_heads mamba_chunk_size "
    "chunk_size linear_key_head_dim linear_value_head_dim",
    16: "q_lora_rank kv_lora_rank",
    24: "moe_intermediate_size shared_expert_intermediate_size",
    1: "encoder_layers n_shared_experts n_group topk_group n_groups mamba_n_groups first_k_dense_replace bos_token_id",
    0: "eos_token_id",
    WINDOW: "sliding_window attention_window_size attention_chunk_size window_size local_attention",
    CONTEXT: "max_position_embeddings n_positions max_seq_len",
    VOCABULARY: "vocab_size vocab_size_per_layer_input shape_vocab_size pronunciation_vocab_size "
    "encoder_hash_byte_group_vocab",
}
SMALL: dict[str, Any] = {name: size for size, names in SIZES.items() for name in names.split()} | {"pad_token_id": None}

DEFAULT = object()
"""In CHANGES: the default of the kind instead of SMALL."""
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
HYBRID_PART = {"text_config": HYBRID}
LATENT = {"head_dim": 4, "num_key_value_heads": 4}
DECODER = {"is_decoder": True}
ROBERTA = DECODER | {"pad_token_id": 2}
CHANGES: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    **dict.fromkeys(("bert", "bert-generation", "big_bird", "electra", "ernie", "megatron-bert", "rembert"), DECODER),
    **dict.fromkeys(("roc_bert", "roformer"), DECODER),
    **dict.fromkeys(("camembert", "data2vec-text", "roberta", "roberta-prelayernorm"), ROBERTA),
    **dict.fromkeys(("xlm-roberta", "xlm-roberta-xl"), ROBERTA),
    **dict.fromkeys(("axk1", "axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite"), LATENT),
    **dict.fromkeys(("glm_moe_dsa", "minicpm3", "youtu"), LATENT),
    **dict.fromkeys(("granitemoehybrid", "minimax"), HYBRID),
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"), HYBRID),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), HYBRID_PART),
    "dbrx": {
        "attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "emu3": {"text_config": {"pad_token_id": VOCABULARY - 1}},
    "falcon": {"alibi": True, "new_decoder_architecture": False},
    "falcon_h1": {"mamba_d_ssm": 64, "lm_head_multiplier": 0.05},
    "gemma3n_text": {"layer_types": ["sliding_attention", "full_attention"], "num_kv_shared_layers": 0},
    "gemma4": {"text_config": {"pad_token_id": VOCABULARY - 1}},
    "gemma4_unified": {"text_config": {"pad_token_id": VOCABULARY - 1}},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "use_mamba_kernels": False},
    "bailing_hybrid": HYBRID | {"num_key_value_heads": 4},
    "kimi_linear": HYBRID | {"num_key_value_heads": 4},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "longcat_flash": LATENT | {"zero_expert_num": 2},
    "mamba2": {"num_heads": 8},
    "modernbert-decoder": {"pad_token_id": 1},
    "prophetnet": {"num_hidden_layers": DEFAULT, "num_encoder_layers": 1, "num_decoder_layers": 2, "pad_token_id": 2},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "num_key_value_heads": 1},
    "reformer": {"is_decoder": True, "axial_pos_embds": False},
    "rwkv": {"num_hidden_layers": 7},  # one more than it halves together
    "xmod": ROBERTA | {"default_language": "en_XX"},
    "xlnet": {"d_head": 8, "max_position_embeddings": DEFAULT},
    "zamba": {"num_hidden_layers": 3, "layers_block_type": ["linear_attention", "hybrid", "hybrid"]},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"]},
    "zaya": {"num_experts_per_tok": 1},
}
"""What the configuration of a kind needs besides small sizes."""


def configuration(kind: str) -> PreTrainedConfig:
    """The small configuration of a kind."""
    made: PreTrainedConfig = AutoConfig.for_model(kind, **_small(AutoConfig.for_model(kind), CHANGES.get(kind, {})))
    return made


def _small(default: PreTrainedConfig, changes: dict[str, Any]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for name, size in SMALL.items():
        with contextlib.suppress(Exception):  # a name that differs by layer, or that the kind refuses
            if hasattr(default, name) and not isinstance(getattr(type(default), name, None), property):
                sizes[name] = size
    for name in default.sub_configs:
        part = getattr(default, name, None)
        if isinstance(part, PreTrainedConfig):
            sizes[name] = {"model_type": part.model_type} | _small(part, changes.get(name, {}))
    changes = {name: change for name, change in changes.items() if name not in default.sub_configs or name not in sizes}
    return {name: size for name, size in (sizes | changes).items() if size is not DEFAULT}


def save(kind: str, folder: Path) -> str:
    """Write a random model of a kind, with weights large enough for its distributions to be far from uniform."""
    words = tiny.tokenizer(pad=None)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(configuration(kind), dtype=torch.float32).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(4.0) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


REFUSED = {
    "blt": "cannot compute",
    "cpmant": "CpmAntForCausalLM is not a causal language model",
    "emu3": "could not be loaded",
    "mllama": "could not be loaded",
    "prophetnet": "ProphetNetForCausalLM is not a causal language model",
    "reformer": "no gradient",
    "xlm": "cannot compute",
    "xlnet": "XLNetLMHeadModel is not a causal language model",
}
"""Kinds that every engine refuses, and words of the refusal."""
ON_GPU = {"internlm3", "llama", "qwen2", "qwen3", "smollm3"}
"""Kinds that the engine for GPUs must compute; it may compute others."""
