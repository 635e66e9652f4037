"""The white-box layers are the paper's equations; the baseline's maps are those that mix."""

import torch
from torch import nn

from crate_mae.models.config import ModelConfig
from crate_mae.models.crate import CrateDecoderBlock, CrateEncoderBlock
from crate_mae.models.initialise import initialise
from crate_mae.models.vit import ViTBlock
from crate_mae.operators import ista_listing, ista_overcomplete, mssa_listing, mssa_tied


def build(kind: type[nn.Module], **overrides: object) -> nn.Module:
    block = kind(ModelConfig(family="crate", dim=12, depth=1, heads=3, lambda_=0.3, **overrides))
    initialise(block, torch.Generator().manual_seed(0))
    return block


def without_norms(block: nn.Module) -> nn.Module:
    for name, module in list(block.named_children()):
        if isinstance(module, nn.LayerNorm):
            setattr(block, name, nn.Identity())
    return block


def test_the_encoder_layer_without_norms_is_the_paper_s() -> None:
    block = without_norms(build(CrateEncoderBlock, mssa="tied", epsilon=0.8))
    Z = torch.randn(2, 5, 12)
    half, code, tokens = block.step(Z)
    torch.testing.assert_close(half, Z + mssa_tied(Z, block.mssa.subspaces, 3, 0.8))
    torch.testing.assert_close(code, ista_listing(half, block.ista.dictionary, 0.1, 0.3))
    assert tokens is code


def test_the_encoder_layer_may_keep_the_half_step_beside_the_code() -> None:
    Z = torch.randn(2, 5, 12)
    paper = build(CrateEncoderBlock).step(Z)
    added = build(CrateEncoderBlock, encoder_skip="added").step(Z)
    relaxed = build(CrateEncoderBlock, encoder_skip="relaxed", relaxation=0.3).step(Z)
    for other in (added, relaxed):
        assert torch.equal(other.half, paper.half)
        assert torch.equal(other.code, paper.code)
    torch.testing.assert_close(added.tokens, paper.half + paper.code)
    torch.testing.assert_close(relaxed.tokens, 0.7 * paper.half + 0.3 * paper.code)
    whole = build(CrateEncoderBlock, encoder_skip="relaxed", relaxation=1.0).step(Z)
    torch.testing.assert_close(whole.tokens, paper.tokens)


def test_the_sum_is_twice_the_relaxed_step_of_one_half_to_the_next_norm() -> None:
    Z = torch.randn(2, 5, 12, dtype=torch.float64)
    added = build(CrateEncoderBlock, encoder_skip="added").double().step(Z).tokens
    relaxed = build(CrateEncoderBlock, encoder_skip="relaxed", relaxation=0.5).double().step(Z).tokens
    torch.testing.assert_close(added, 2 * relaxed)
    norm = nn.LayerNorm(12, eps=1e-12, dtype=torch.float64)
    torch.testing.assert_close(norm(added), norm(relaxed))


def test_the_alpha_layer_token_by_token_from_its_formula() -> None:
    """Yang et al., 2024: two steps from zero on the LASSO, decoded by the second dictionary, added to the token."""
    block = build(CrateEncoderBlock, sparsifier="alpha", overcomplete=4, encoder_skip="added")
    half, _, tokens = block.step(torch.randn(2, 5, 12))
    D, second = (matrix.detach().double() for matrix in (block.ista.dictionary, block.ista.decoupled))
    assert D.shape == second.shape == (12, 48)
    for h, out in zip(half.detach().flatten(0, 1), tokens.detach().flatten(0, 1), strict=True):
        z = (h.double() - h.double().mean()) / (h.double().var(correction=0) + 1e-5).sqrt()
        code = torch.zeros(48, dtype=torch.float64)
        for _ in range(2):
            code = (code + 0.1 * D.T @ (z - D @ code) - 0.1 * 0.3).clamp(min=0)
        torch.testing.assert_close(out, (h + second @ code).float())


def test_the_alpha_sparsifier_codes_in_more_atoms_and_maps_back() -> None:
    block = build(CrateEncoderBlock, sparsifier="alpha", overcomplete=2, encoder_skip="added")
    half, code, tokens = block.step(torch.randn(2, 5, 12))
    D, back = block.ista.dictionary, block.ista.decoupled
    assert D.shape == back.shape == (12, 24)
    torch.testing.assert_close(code, ista_overcomplete(block.norm_ista(half), D, 0.1, 0.3))
    torch.testing.assert_close(tokens, half + code @ back.T)


def test_the_decoder_layer_without_norms_is_the_paper_s() -> None:
    block = without_norms(build(CrateDecoderBlock, mssa="tied", epsilon=0.8))
    Y = torch.randn(2, 5, 12)
    half, _, full = block.step(Y)
    E = block.rotation.weight
    torch.testing.assert_close(half, (E @ Y.mT).mT)
    torch.testing.assert_close(full, half - mssa_tied(half, block.mssa.subspaces, 3, 0.8))


def test_with_norms_the_layers_are_the_listing_s() -> None:
    encoder, decoder, official = (
        build(CrateEncoderBlock),
        build(CrateDecoderBlock),
        build(CrateDecoderBlock, decoder_skip="raw"),
    )
    x = torch.randn(2, 5, 12)

    def attn(block: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        return mssa_listing(tokens, block.mssa.subspaces, block.mssa.output.weight, block.mssa.output.bias, 3)

    x_ = attn(encoder, encoder.norm_mssa(x)) + x
    torch.testing.assert_close(encoder.step(x).half, x_)
    torch.testing.assert_close(encoder(x), ista_listing(encoder.norm_ista(x_), encoder.ista.dictionary, 0.1, 0.3))

    x_ = decoder.rotation(decoder.norm_rotation(x))
    ln2 = decoder.norm_mssa(x_)
    torch.testing.assert_close(decoder.step(x).half, x_)  # before its second norm
    torch.testing.assert_close(decoder(x), ln2 - attn(decoder, ln2))
    torch.testing.assert_close(official(x), x_ - attn(official, ln2))


def test_the_vit_s_maps_are_those_that_mix() -> None:
    config = ModelConfig(family="vit", dim=12, depth=1, heads=3)
    block = ViTBlock(12, 3, config)
    initialise(block, torch.Generator().manual_seed(0))
    x = torch.randn(2, 5, 12)
    normed = block.norm_attention(x)
    values = block.mixer.qkv(normed)[..., 24:].reshape(2, 5, 3, 4).transpose(1, 2)
    mixed = (block.attention(x) @ values).transpose(1, 2).reshape(2, 5, 12)
    torch.testing.assert_close(block.step(x).half, x + block.mixer.output(mixed))
