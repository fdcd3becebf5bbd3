"""Writes tiny random GGUF models: real files for llama.cpp, made in milliseconds, the same at every run."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

EMBD, LAYERS, HEADS, KV_HEADS, FF, CTX = 64, 2, 4, 2, 128, 256
BYTE_TOKENS = 256


def write_tiny_llama(path: Path, *, template: str | None = None, seed: int = 1) -> Path:
    """A llama with a byte-level vocabulary: 3 special tokens and one token for each byte."""
    writer = gguf.GGUFWriter(str(path), "llama")
    _add_hyperparameters(writer)
    _add_vocabulary(writer)
    if template is not None:
        writer.add_chat_template(template)
    for name, shape in _shapes().items():
        writer.add_tensor(name, _weights(name, shape, seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_hyperparameters(writer: gguf.GGUFWriter) -> None:
    writer.add_name("tiny random llama")
    writer.add_context_length(CTX)
    writer.add_embedding_length(EMBD)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBD // HEADS)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    special = ["<unk>", "<s>", "</s>"]
    tokens = special + [f"<0x{byte:02X}>" for byte in range(BYTE_TOKENS)]
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    types += [gguf.TokenType.BYTE] * BYTE_TOKENS
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([int(kind) for kind in types])
    writer.add_vocab_size(len(tokens))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def _shapes() -> dict[str, tuple[int, ...]]:
    vocab, kv = BYTE_TOKENS + 3, EMBD // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab, EMBD),
        "output_norm.weight": (EMBD,),
        "output.weight": (vocab, EMBD),
    }
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        shapes |= {
            block + "attn_norm.weight": (EMBD,),
            block + "attn_q.weight": (EMBD, EMBD),
            block + "attn_k.weight": (kv, EMBD),
            block + "attn_v.weight": (kv, EMBD),
            block + "attn_output.weight": (EMBD, EMBD),
            block + "ffn_norm.weight": (EMBD,),
            block + "ffn_gate.weight": (FF, EMBD),
            block + "ffn_up.weight": (FF, EMBD),
            block + "ffn_down.weight": (EMBD, FF),
        }
    return shapes


def _weights(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    # Each tensor has a generator of its own, so that adding one changes no other.
    rng = np.random.default_rng([seed, *name.encode()])
    return rng.normal(0, 0.3, shape).astype(np.float32)
