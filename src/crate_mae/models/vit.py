"""The standard transformer layer, for the baseline."""

from jaxtyping import Float
from torch import Tensor, nn

from crate_mae.models.config import ModelConfig
from crate_mae.models.stack import Block, Present, Step, Tokens
from crate_mae.operators import attention_map, fused_attention, merge


class Attention(nn.Module):
    """Multi-head self-attention; queries, keys and values come from one matrix."""

    def __init__(self, dim: int, heads: int, bias: bool):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.output = nn.Linear(dim, dim)

    def forward(self, tokens: Tokens, present: Present = None) -> Tokens:
        q, k, v = self.split(tokens)
        return self.output(merge(fused_attention(q, k, v, present=present)))

    def attention(self, tokens: Tokens, present: Present = None) -> Float[Tensor, "b heads n n"]:
        """softmax(Q K^T / sqrt p) in each head."""
        q, k, _ = self.split(tokens)
        return attention_map(q, k, q.shape[-1] ** -0.5, present)

    def split(self, tokens: Tokens) -> tuple[Tensor, ...]:
        """Queries, keys and values, each (b, heads, n, p)."""
        return self.qkv(tokens).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


class ViTBlock(Block):
    """x' = x + Attention(LN x); x'' = x' + MLP(LN x')."""

    def __init__(self, dim: int, heads: int, config: ModelConfig):
        super().__init__()
        hidden = round(dim * config.mlp_ratio)
        self.norm_attention = nn.LayerNorm(dim, eps=config.norm_eps)
        self.mixer = Attention(dim, heads, config.qkv_bias)
        self.norm_mlp = nn.LayerNorm(dim, eps=config.norm_eps)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def step(self, tokens: Tokens, present: Present = None) -> Step:
        half = tokens + self.mixer(self.norm_attention(tokens), present)
        added = self.mlp(self.norm_mlp(half))
        return Step(half, added, half + added)

    def attention(self, tokens: Tokens, present: Present = None) -> Float[Tensor, "b heads n n"]:
        return self.mixer.attention(self.attended(tokens), present)

    def attended(self, tokens: Tokens) -> Tokens:
        return self.norm_attention(tokens)

    def attend(self, attended: Tokens, present: Present = None) -> Tokens:
        return self.mixer(attended, present)

    def normed_half(self, half: Tokens) -> Tokens:
        return self.norm_mlp(half)

    def queries_and_keys(self, tokens: Tokens) -> tuple[Float[Tensor, "b heads n p"], Float[Tensor, "b heads n p"]]:
        queries, keys, _ = self.mixer.split(tokens)
        return queries, keys
