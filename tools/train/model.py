"""The shipped model's architecture in plain torch, named as a Llama checkpoint names it, so that export is a copy.

Training packs many conversations into one row of 1024 tokens. Attention must not look across them, or the model would
learn to expect strangers' stories in front of every prompt; FlexAttention skips the blocks that the mask empties.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab: int = 4096
    hidden: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 768
    max_positions: int = 1024
    rope_theta: float = 10000.0
    eps: float = 1e-5


def rope_table(config, n):
    """cos, sin: [n, head_dim], the halves repeated; angles in fp32."""
    inverse = config.rope_theta ** -(torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim)
    angles = torch.outer(torch.arange(n, dtype=torch.float32), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """x: [batch, heads, n, head_dim]"""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.weight.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)

    def forward(self, x, cos, sin, attend):
        b, n, _ = x.shape
        q, k, v = (proj(x).view(b, n, -1, self.c.head_dim).transpose(1, 2) for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        return self.o_proj(attend(q, k, v).transpose(1, 2).reshape(b, n, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.down_proj = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(c.hidden, c.eps), Norm(c.hidden, c.eps)
        self.self_attn, self.mlp = Attention(c), Mlp(c)

    def forward(self, x, cos, sin, attend):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """The output matrix is the embedding."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = Norm(c.hidden, c.eps)
        cos, sin = rope_table(c, c.max_positions)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.04 / (2 * c.layers) ** 0.5 if deep else 0.04)

    def forward(self, ids, attend):
        """ids [batch, n] -> the normed state [batch, n, hidden]"""
        x = self.embed_tokens(ids)
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        return self.norm(x)

    def next_logits(self, ids, last):
        """Logits [batch, vocab] after position last of each row. Plain causal attention, so right padding is harmless."""
        state = self(ids, attend_causal)[torch.arange(len(last), device=ids.device), last]
        return F.linear(state, self.embed_tokens.weight)


def attend_causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def packed_attention(document):
    """document [batch, n]: which conversation a token belongs to. Returns attend(q, k, v). The numbers go in as int32:
    with int16 the forward kernel took 4 ms a layer and a step 62 ms; now a step takes 32 ms. (TF32 for the few fp32 products
    was allowed in the same change, so the share of each is not known.)"""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def same(b, _h, q, k):
        return (q >= k) & (document[b, q] == document[b, k])

    mask = create_block_mask(same, document.shape[0], None, document.shape[1], document.shape[1], device=document.device)
    return lambda q, k, v: flex_attention(q, k, v, block_mask=mask, enable_gqa=True)


def packed_loss(model, ids, document, weight):
    """ids [batch, n + 1]; document, weight [batch, n]. Weighted mean cross entropy of the next token; weight 0 where the
    next token is not to be learnt."""
    state = model(ids[:, :-1], packed_attention(document))
    logits = F.linear(state, model.embed_tokens.weight.to(state.dtype))
    loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none")
    return (loss * weight.flatten()).sum() / weight.sum()
