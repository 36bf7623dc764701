"""ingot-eyes in plain torch: a SigLIP encoder, pixel shuffle, and the decoder of model.py; named as a SmolVLM checkpoint names it.

A sequence is a picture's places followed by questions with their answers. Each question sees the picture and itself, not the others, and its
positions go on from the picture's: one picture serves many questions, and each is what it will be when asked alone.
"""
import torch
import torch.nn.functional as F
from torch import nn

from eyes_tokens import IMAGE, VOCABULARY
from model import Config, Mlp, Norm, rope_table, rotate
from pictures import PATCH, TILE

TEXT = Config(vocab=VOCABULARY, layers=5)
TEXT_LAYERS_OF_INGOT_7M = [0, 1, 2, 6, 7]
TOWER_COLS, TOWER_HEADS, TOWER_FFN, TOWER_LAYERS, SCALE, TOWER_EPS = 192, 6, 384, 6, 2, 1e-6
SIDE = TILE // PATCH


def group(**modules):
    """Modules under a name of their own, as the checkpoint has them."""
    out = nn.Module()
    for name, module in modules.items():
        out.add_module(name, module)
    return out


def heads_of(x, n):
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


class TowerLayer(nn.Module):
    def __init__(self):
        super().__init__()
        c = TOWER_COLS
        self.self_attn = group(**{f"{p}_proj": nn.Linear(c, c) for p in ("q", "k", "v", "out")})
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(c, TOWER_EPS), nn.LayerNorm(c, TOWER_EPS)
        self.mlp = group(fc1=nn.Linear(c, TOWER_FFN), fc2=nn.Linear(TOWER_FFN, c))

    def forward(self, x):
        a, n = self.self_attn, self.layer_norm1(x)
        q, k, v = (heads_of(p(n), TOWER_HEADS) for p in (a.q_proj, a.k_proj, a.v_proj))
        x = x + a.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp.fc2(F.gelu(self.mlp.fc1(self.layer_norm2(x)), approximate="tanh"))


class TextLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(c.hidden, c.eps), Norm(c.hidden, c.eps)
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.self_attn = group(q_proj=nn.Linear(c.hidden, q, bias=False), k_proj=nn.Linear(c.hidden, kv, bias=False),
                               v_proj=nn.Linear(c.hidden, kv, bias=False), o_proj=nn.Linear(q, c.hidden, bias=False))
        self.mlp = Mlp(c)
        self.heads, self.kv_heads = c.heads, c.kv_heads

    def forward(self, x, cos, sin, mask):
        a, n = self.self_attn, self.input_layernorm(x)
        q, k, v = heads_of(a.q_proj(n), self.heads), heads_of(a.k_proj(n), self.kv_heads), heads_of(a.v_proj(n), self.kv_heads)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        x = x + a.o_proj(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))
        return x + self.mlp(self.post_attention_layernorm(x))


class Eyes(nn.Module):
    """The output matrix is the embedding. run_tower and run_text run a layer; train_eyes.py puts compiled ones there."""

    def __init__(self):
        super().__init__()
        c = TOWER_COLS
        self.vision_model = group(embeddings=group(patch_embedding=nn.Conv2d(3, c, PATCH, PATCH), position_embedding=nn.Embedding(SIDE * SIDE, c)),
                                  encoder=group(layers=nn.ModuleList(TowerLayer() for _ in range(TOWER_LAYERS))),
                                  post_layernorm=nn.LayerNorm(c, TOWER_EPS))
        self.connector = group(modality_projection=group(proj=nn.Linear(c * SCALE * SCALE, TEXT.hidden, bias=False)))
        self.text_model = group(embed_tokens=nn.Embedding(TEXT.vocab, TEXT.hidden), layers=nn.ModuleList(TextLayer(TEXT) for _ in range(TEXT.layers)),
                                norm=Norm(TEXT.hidden, TEXT.eps))
        cos, sin = rope_table(TEXT, TEXT.max_positions)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.run_tower, self.run_text = TowerLayer.forward, TextLayer.forward
        for name, p in self.named_parameters():
            if p.ndim >= 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight", "fc2.weight"))
                nn.init.normal_(p, std=0.01 if deep else 0.03)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def see(self, tiles):
        """tiles: uint8 [n, TILE, TILE, 3] -> the encoder's output [n, patches, cols]"""
        e = self.vision_model.embeddings
        x = (tiles.float() / 255 - 0.5) / 0.5
        x = x.view(-1, SIDE, PATCH, SIDE, PATCH, 3).permute(0, 1, 3, 5, 2, 4).reshape(len(tiles), SIDE * SIDE, -1)  # channel, y, x
        x = F.linear(x, e.patch_embedding.weight.flatten(1), e.patch_embedding.bias) + e.position_embedding.weight
        for layer in self.vision_model.encoder.layers:
            x = self.run_tower(layer, x)
        return self.vision_model.post_layernorm(x)

    def connect(self, x):
        """[n, patches, cols] -> [n, places, hidden]: squares of SCALE x SCALE patches, then one product"""
        side = SIDE // SCALE
        x = x.view(-1, side, SCALE, side, SCALE, TOWER_COLS).permute(0, 1, 3, 2, 4, 5).reshape(len(x), side * side, -1)
        return self.connector.modality_projection.proj(x)

    def read(self, rows, ids, positions, mask):
        """rows [batch, places, hidden], ids and positions [batch, n], mask [batch, 1, n, n] -> the normed state [batch, n, hidden]"""
        x = self.text_model.embed_tokens(ids)
        places = (ids[0] == IMAGE).nonzero()[:, 0]  # the same in every sequence
        x = x.index_copy(1, places, rows.to(x.dtype))
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        for layer in self.text_model.layers:
            x = self.run_text(layer, x, cos, sin, mask)
        return self.text_model.norm(x)

    def logits(self, state):
        return F.linear(state, self.text_model.embed_tokens.weight.to(state.dtype))
