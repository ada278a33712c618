#!/usr/bin/env python3
"""Writes tiny models with random weights, one of each kind of memory that llama.cpp has, for tests.

  tiny_models.py FOLDER        a GGUF file each, under 1 MB, together in about a second; no packages needed

  llama, llama_b        attention, of the same shape with other weights
  llama_swa, _swa96     window and full layers by turns, window 128 and 96 (architecture gemma3)
  mamba                 recurrent layers only
  lfm2                  short convolutions and full attention
  lfm2_swa              the same, every attention layer with a window of 128
  granite_hybrid        state-space (mamba 2) and full attention
  mla                   attention with one compressed row for K and V (architecture deepseek2)
  lora/a, lora/b        LoRA adapters for llama

Four layers, 64 wide, 256 tokens without a text; contexts up to 4,096. What a model answers depends on every token that it still sees, so
that a wrongly restored state shows: attention is sharp (few tokens weigh much, near and far alike), states fade over some hundred tokens,
and the output is not tied to the embedding (else the answer is always the last token).
"""
import array
import math
import os
import random
import struct
import sys

WIDTH, LAYERS, VOCABULARY, HEADS, KV_HEADS, HEAD, FEED = 64, 4, 256, 4, 2, 16, 128
SHARP = 1.6  # rms of a query and of a key; the scores before the softmax spread by its square
ALIGNMENT = 32


class Numbers:
    """32-bit numbers from a seed, uniform, told by their mean and standard deviation."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def around(self, count, mean, deviation):
        raw = array.array("h", self.random.randbytes(2 * count))
        step = deviation * math.sqrt(3) / 32768
        return array.array("f", [mean + step * value for value in raw])

    def between(self, count, low, high):
        """Evenly in the logarithm; for rates, which differ by factors."""
        return array.array("f", [math.exp(self.random.uniform(math.log(low), math.log(high))) for _ in range(count)])


class File:
    """Keys, and tensors with random values."""

    def __init__(self, architecture, seed):
        self.numbers = Numbers(seed)
        self.keys = [("general.architecture", architecture), ("general.name", f"tiny {architecture} {seed}")]
        self.tensors = []

    def tensor(self, name, shape, values):
        assert len(values) == math.prod(shape)
        self.tensors.append((name, shape, values))

    def write(self, path):
        head, data, at = [], [], 0
        for name, shape, values in self.tensors:
            if sys.byteorder == "big":
                values.byteswap()
            size = 4 * len(values)
            head.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at))
            data.append(values.tobytes() + bytes(-size % ALIGNMENT))
            at += size + -size % ALIGNMENT
        top = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        top += b"".join(text(key) + typed(value) for key, value in self.keys) + b"".join(head)
        with open(path, "wb") as file:
            file.write(top + bytes(-len(top) % ALIGNMENT) + b"".join(data))


class Model(File):
    def __init__(self, architecture, seed, **keys):
        super().__init__(architecture, seed)
        self.keys.append(("tokenizer.ggml.model", "no_vocab"))
        common = {"vocab_size": VOCABULARY, "context_length": 4096, "embedding_length": WIDTH, "block_count": LAYERS,
                  "feed_forward_length": FEED, "attention.head_count": HEADS, "attention.layer_norm_rms_epsilon": 1e-5}
        for name, value in {**common, **{name.replace("__", "."): value for name, value in keys.items()}}.items():
            self.keys.append((f"{architecture}.{name}", value))

    def matrix(self, name, rows, columns, gain=1.0, *more):
        """`rows` numbers in, `columns` out, the output `gain` times the size of the input."""
        count = math.prod((rows, columns, *more))
        self.tensor(name + ".weight", (rows, columns, *more), self.numbers.around(count, 0, gain / math.sqrt(rows)))

    def norm(self, name, width, size=1.0):
        self.tensor(name + ".weight", (width,), self.numbers.around(width, size, 0.2 * size))

    def ends(self, last_norm="output_norm"):
        self.matrix("token_embd", WIDTH, VOCABULARY, math.sqrt(WIDTH))
        self.norm(last_norm, WIDTH)
        self.matrix("output", WIDTH, VOCABULARY, 3)

    def attention(self, layer, normed_heads):
        b = f"blk.{layer}."
        self.matrix(b + "attn_q", WIDTH, HEADS * HEAD, SHARP)
        self.matrix(b + "attn_k", WIDTH, KV_HEADS * HEAD, SHARP)
        self.matrix(b + "attn_v", WIDTH, KV_HEADS * HEAD)
        self.matrix(b + "attn_output", HEADS * HEAD, WIDTH)
        if normed_heads:
            self.norm(b + "attn_q_norm", HEAD, SHARP)
            self.norm(b + "attn_k_norm", HEAD, SHARP)

    def feed_forward(self, layer):
        b = f"blk.{layer}."
        self.norm(b + "ffn_norm", WIDTH)
        self.matrix(b + "ffn_gate", WIDTH, FEED)
        self.matrix(b + "ffn_up", WIDTH, FEED)
        self.matrix(b + "ffn_down", FEED, WIDTH)

    def steps(self, name, count):
        """Bias of a state's step, which is softplus(bias + input): steps around 0.01 to 0.1."""
        steps = self.numbers.between(count, 0.01, 0.1)
        self.tensor(name, (count,), array.array("f", [math.log(math.expm1(step)) for step in steps]))

    def decay(self, name, shape):
        rates = self.numbers.between(math.prod(shape), 0.05, 1)
        self.tensor(name, shape, array.array("f", [-rate for rate in rates]))


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def typed(value):
    """A GGUF value: bool, u32, f32, string, or an array of u32."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    return struct.pack(f"<IIQ{len(value)}I", 9, 4, len(value), *value)


def llama(seed):
    model = Model("llama", seed, attention__head_count_kv=KV_HEADS, rope__dimension_count=HEAD)
    model.ends()
    for layer in range(LAYERS):
        model.norm(f"blk.{layer}.attn_norm", WIDTH)
        model.attention(layer, normed_heads=False)
        model.feed_forward(layer)
    return model


def windowed(seed, window):
    """Layers 0 and 2 see a window, 1 and 3 everything."""
    model = Model("gemma3", seed, attention__head_count_kv=KV_HEADS, attention__key_length=HEAD, attention__value_length=HEAD,
                  attention__sliding_window=window, attention__sliding_window_pattern=2)
    model.ends()
    for layer in range(LAYERS):
        model.norm(f"blk.{layer}.attn_norm", WIDTH)
        model.attention(layer, normed_heads=True)
        # After embeddings that this architecture multiplies by the root of the width.
        model.norm(f"blk.{layer}.post_attention_norm", WIDTH, math.sqrt(WIDTH))
        model.feed_forward(layer)
        model.norm(f"blk.{layer}.post_ffw_norm", WIDTH, math.sqrt(WIDTH))
    return model


def mamba(seed):
    inner, state, rank, kernel = 2 * WIDTH, 16, 4, 4
    model = Model("mamba", seed, attention__head_count=0, feed_forward_length=0, ssm__conv_kernel=kernel,
                  ssm__inner_size=inner, ssm__state_size=state, ssm__time_step_rank=rank)
    model.ends()
    for layer in range(LAYERS):
        b = f"blk.{layer}."
        model.norm(b + "attn_norm", WIDTH)
        model.matrix(b + "ssm_in", WIDTH, 2 * inner, 1.5)
        model.matrix(b + "ssm_conv1d", kernel, inner, 1.5)
        model.tensor(b + "ssm_conv1d.bias", (inner,), model.numbers.around(inner, 0, 0.1))
        model.matrix(b + "ssm_x", inner, rank + 2 * state, 2)
        model.matrix(b + "ssm_dt", rank, inner, 0.5)
        model.steps(b + "ssm_dt.bias", inner)
        model.decay(b + "ssm_a", (state, inner))
        model.tensor(b + "ssm_d", (inner,), model.numbers.around(inner, 0.5, 0.2))
        model.matrix(b + "ssm_out", inner, WIDTH, 2)
    return model


def by_turns():
    """KV heads of each layer: 0 and 2 are recurrent, 1 and 3 attend."""
    return [0 if layer % 2 == 0 else KV_HEADS for layer in range(LAYERS)]


def lfm2(seed, **keys):
    kernel = 3
    model = Model("lfm2", seed, attention__head_count_kv=by_turns(), shortconv__l_cache=kernel, **keys)
    model.ends("token_embd_norm")
    for layer, kv_heads in enumerate(by_turns()):
        b = f"blk.{layer}."
        model.norm(b + "attn_norm", WIDTH)
        if kv_heads:
            model.attention(layer, normed_heads=True)
        else:
            model.matrix(b + "shortconv.conv", kernel, WIDTH, 1.5)
            model.matrix(b + "shortconv.in_proj", WIDTH, 3 * WIDTH)
            model.matrix(b + "shortconv.out_proj", WIDTH, WIDTH)
        model.feed_forward(layer)
    return model


def granite_hybrid(seed):
    inner, state, heads, groups, kernel = 2 * WIDTH, 16, 8, 1, 4
    model = Model("granitehybrid", seed, attention__head_count_kv=by_turns(), rope__dimension_count=HEAD, rope__scaling__finetuned=True,
                  ssm__conv_kernel=kernel, ssm__inner_size=inner, ssm__state_size=state, ssm__time_step_rank=heads,
                  ssm__group_count=groups)
    model.ends()
    for layer, kv_heads in enumerate(by_turns()):
        b = f"blk.{layer}."
        model.norm(b + "attn_norm", WIDTH)
        if kv_heads:
            model.attention(layer, normed_heads=False)
        else:
            mixed = inner + 2 * groups * state
            model.matrix(b + "ssm_in", WIDTH, inner + mixed + heads, 1.5)
            model.matrix(b + "ssm_conv1d", kernel, mixed, 1.5)
            model.tensor(b + "ssm_conv1d.bias", (mixed,), model.numbers.around(mixed, 0, 0.1))
            model.steps(b + "ssm_dt.bias", heads)
            model.decay(b + "ssm_a", (1, heads))
            model.tensor(b + "ssm_d", (1, heads), model.numbers.around(heads, 0.5, 0.2))
            model.tensor(b + "ssm_norm.weight", (inner // groups, groups), model.numbers.around(inner, 1, 0.2))
            model.matrix(b + "ssm_out", inner, WIDTH)
        model.feed_forward(layer)
    return model


def mla(seed):
    query_rank, rank, rotated, plain = 32, 32, 8, HEAD
    model = Model("deepseek2", seed, attention__head_count_kv=1, attention__q_lora_rank=query_rank, attention__kv_lora_rank=rank,
                  attention__key_length=rank + rotated, attention__value_length=rank,
                  attention__key_length_mla=plain + rotated, attention__value_length_mla=HEAD, rope__dimension_count=rotated,
                  leading_dense_block_count=LAYERS, expert_shared_count=0, expert_feed_forward_length=0)
    model.ends()
    for layer in range(LAYERS):
        b = f"blk.{layer}."
        model.norm(b + "attn_norm", WIDTH)
        model.matrix(b + "attn_q_a", WIDTH, query_rank)
        model.norm(b + "attn_q_a_norm", query_rank)
        model.matrix(b + "attn_q_b", query_rank, HEADS * (plain + rotated), SHARP)
        model.matrix(b + "attn_kv_a_mqa", WIDTH, rank + rotated, SHARP)
        model.norm(b + "attn_kv_a_norm", rank)
        model.matrix(b + "attn_k_b", plain, rank, SHARP * math.sqrt(plain / rank), HEADS)
        model.matrix(b + "attn_v_b", rank, HEAD, 1.0, HEADS)
        model.matrix(b + "attn_output", HEADS * HEAD, WIDTH)
        model.feed_forward(layer)
    return model


def lora(seed):
    """Rank 4, of every layer's queries and values; at scale 1 it changes them by half their size."""
    rank, size = 4, 0.5
    adapter = File("llama", seed)
    adapter.keys += [("general.type", "adapter"), ("adapter.type", "lora"), ("adapter.lora.alpha", float(rank))]
    for layer in range(LAYERS):
        for name, columns in (("attn_q", HEADS * HEAD), ("attn_v", KV_HEADS * HEAD)):
            weight = f"blk.{layer}.{name}.weight"
            adapter.tensor(weight + ".lora_a", (WIDTH, rank), adapter.numbers.around(WIDTH * rank, 0, 1 / math.sqrt(WIDTH)))
            adapter.tensor(weight + ".lora_b", (rank, columns), adapter.numbers.around(rank * columns, 0, size / math.sqrt(rank)))
    return adapter


def main():
    if len(sys.argv) != 2:
        sys.exit("tiny_models: say the folder to write into")
    models = {"llama": llama(1), "llama_b": llama(2), "llama_swa": windowed(3, 128), "llama_swa96": windowed(4, 96), "mamba": mamba(5),
              "lfm2": lfm2(6), "lfm2_swa": lfm2(7, attention__sliding_window=128), "granite_hybrid": granite_hybrid(8), "mla": mla(9),
              "lora/a": lora(10), "lora/b": lora(11)}
    os.makedirs(os.path.join(sys.argv[1], "lora"), exist_ok=True)
    for name, model in models.items():
        model.write(os.path.join(sys.argv[1], name + ".gguf"))


if __name__ == "__main__":
    main()
