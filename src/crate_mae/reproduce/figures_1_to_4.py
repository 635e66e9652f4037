"""Figures 1, 2 and 4, which are sketches in the paper: here the same steps on real tokens. Figure 3, the theory."""

import torch
from torch import Tensor

from crate_mae.analysis.completed_images import completion_panels
from crate_mae.analysis.quantities import sparsity
from crate_mae.analysis.undoing import undoing
from crate_mae.data.source import Subset
from crate_mae.figures.token_flow import clouds, token_flow
from crate_mae.operators import ista, mssa_tied
from crate_mae.reproduce.comparison_table import Cell
from crate_mae.reproduce.drawing import (
    BATCH,
    SEED,
    Drawing,
    Made,
    figure_table,
    in_random_order,
    look,
    model_of_figures,
    pretrainings,
    shown,
    stream,
    trained,
)
from crate_mae.reproduce.scales import Scale, title
from crate_mae.reproduce.tasks import Place
from crate_mae.theory import mixture
from crate_mae.theory.checks import equivalence
from crate_mae.theory.figures import fields

NOT_ZERO = "entries that are not zero, %"


def figure1(scale: Scale, seeds: int) -> Drawing:
    """The pipeline, on one image."""
    wanted = model_of_figures(scale, "crate")

    @torch.no_grad()
    def draw(place: Place) -> Made:
        model = trained(place, wanted)
        images, masks = look(place, model, in_random_order(shown(place))[:1])
        panels = completion_panels(model, images, masks)
        latent = model.encode(images, masks)
        encoder = [model.embed(images, masks), *(step.tokens for step in model.encoder_steps(images, masks))]
        decoder = [model.hand_over(latent, masks), *(step.tokens for step in model.decoder_steps(images, masks))]
        rows = {
            "encoder": [
                ("original", panels.original[0]),
                ("masked", panels.masked[0]),
                *((f"$Z^{{{layer}}}$", _matrix(tokens)) for layer, tokens in enumerate(encoder, 1)),
            ],
            "decoder": [
                *((f"$Y^{{{layer}}}$", _matrix(tokens)) for layer, tokens in enumerate(decoder)),
                ("completed", panels.completed[0]),
            ],
        }
        cells = [Cell(f"Z^{layer}", NOT_ZERO, None, (_not_zero(tokens),)) for layer, tokens in enumerate(encoder, 1)]
        cells += [Cell(f"Y^{layer}", NOT_ZERO, None, (_not_zero(tokens),)) for layer, tokens in enumerate(decoder)]
        notes = [
            place.scale.protocol,
            f"{title('crate', 'base')} of seed 0 on one image of {place.scale.shown}, 75 % of its patches masked: "
            f"error {panels.errors[0]:.3f}. A matrix is d x (1 + N), a column for each token; red is above zero.",
        ]
        return Made(figure_table("figure1", heading="tokens", cells=cells, notes=notes), {"figure1": token_flow(rows)})

    return Drawing("figure1", pretrainings(scale, [wanted]), draw)


def figure2(scale: Scale, seeds: int) -> Drawing:
    """Compression, then sparsification, of tokens near three lines in 3-D space."""

    def draw(place: Place) -> Made:
        generator = torch.Generator().manual_seed(SEED)
        U = mixture.orthogonal_bases(3, 3, 1, generator)
        drawn = mixture.sample(mixture.codebook(U, 0.15), (150,), generator)
        lines = U[..., 0].mT  # d x K: also the dictionary, whose atoms are the lines
        Z = drawn.tokens.mT
        half = Z + mssa_tied(Z, lines.mT, 3, len(Z) ** -0.5)  # eps^2 = p / N, so that MSSA's factor is 1
        full = ista(half, lines, eta=1.0, lambda_=0.1)
        stages = {
            "$Z^\\ell$: tokens near three lines": (Z, lines),
            "$Z^{\\ell+1/2}$: compressed by MSSA": (half, lines),
            "$Z^{\\ell+1}$: sparsified by ISTA": (full, torch.eye(3, dtype=Z.dtype)),
        }
        cells = []
        for row, (points, axes) in zip(("Z^l", "Z^{l+1/2}", "Z^{l+1}"), stages.values(), strict=True):
            nearest = mixture.project_to_nearest(axes.mT[..., None], points.mT)
            off = (points.mT - nearest).square().sum() / points.square().sum()
            cells.append(Cell(row, "squared norm off the nearest line, %", None, (100 * off.item(),)))
            cells.append(Cell(row, NOT_ZERO, None, (_not_zero(points[None]),)))
        picture = clouds(
            {name: points.mT.numpy() for name, (points, _) in stages.items()},
            drawn.memberships.numpy(),
            {name: axes.numpy() for name, (_, axes) in stages.items()},
        )
        notes = [
            "150 tokens near three lines in 3-D space with noise 0.15, through the equations of one layer: MSSA with "
            "U, the lines, and p/(N eps^2) = 1; ISTA with D = [U_1 U_2 U_3], eta = 1, lambda = 0.1, one step. ISTA "
            "allows no negative entry: tokens on the negative side of a line become zero.",
        ]
        return Made(figure_table("figure2", heading="tokens", cells=cells, notes=notes), {"figure2": picture})

    return Drawing("figure2", [], draw)


def figure3(scale: Scale, seeds: int) -> Drawing:
    """Compression beside denoising."""

    def draw(place: Place) -> Made:
        cells, pictures, notes = [], {}, []
        for name, check in (("2d", equivalence.fields_2d), ("3d", equivalence.fields_3d)):
            found = check(torch.Generator().manual_seed(SEED))
            numbers = found.numbers
            pictures[f"figure3-{name}"] = fields(
                numbers["picture"], numbers["sigma"], numbers["alone"], numbers["together"]
            )
            for kind in ("alone", "together"):
                for sigma, row in zip(numbers["sigma"], numbers[kind]["cosine"], strict=True):
                    cells.append(Cell(f"{name}, tokens coded {kind}", f"sigma {sigma:g}", None, (row["mean"],)))
            notes.append(f"{found.claim}: {found.measured:.3f}, which {'holds' if found.holds else 'does not hold'}.")
        heading = "mean cosine of -grad R^c with the score"
        return Made(
            figure_table("figure3", heading=heading, unit="cosine", cells=cells, notes=notes, digits=3), pictures
        )

    return Drawing("figure3", [], draw)


def figure4(scale: Scale, seeds: int) -> Drawing:
    """An encoder layer and the decoder layer that should undo it."""
    wanted = model_of_figures(scale, "crate")

    @torch.no_grad()
    def draw(place: Place) -> Made:
        model = trained(place, wanted)
        source = shown(place)
        order = in_random_order(source)
        images, _ = look(place, model, order[:1])
        entering = model.encoder.entering(model.embed(images), -1)
        forth = model.encoder.blocks[-1].step(entering)
        back = model.decoder.blocks[0].step(forth.tokens)
        rows = {
            "encoder layer $f^L$": [
                ("$Z^L$", _matrix(entering)),
                ("$Z^{L+1/2}$: compressed", _matrix(forth.half)),
                ("$Z^{L+1}$: sparsified", _matrix(forth.tokens)),
            ],
            "decoder layer $g^0$": [
                ("$Y^0 = Z^{L+1}$", _matrix(forth.tokens)),
                ("$Y^{1/2}$: rotated back", _matrix(back.half)),
                ("$Y^1$: expanded", _matrix(back.tokens)),
            ],
        }
        found = undoing(model, stream(model, Subset(source, order[: 4 * BATCH])))
        depth = model.config.depth
        cells = []
        for layer in range(depth):
            row = f"f^{layer + 1} undone by g^{depth - 1 - layer}"
            cells.append(Cell(row, "relative error", None, (float(found.error.mean[layer]),)))
            cells.append(Cell(row, "not undone", None, (float(found.error_left_alone.mean[layer]),)))
        notes = [
            place.scale.protocol,
            f"Drawn: {title('crate', 'base')} of seed 0 on one image of {place.scale.shown}, nothing masked. Numbers: "
            f"||g(f(Z)) - Z|| / ||Z|| as a mean over {found.images} images, and ||f(Z) - Z|| / ||Z||.",
        ]
        return Made(
            figure_table("figure4", heading="layer", cells=cells, notes=notes, digits=3), {"figure4": token_flow(rows)}
        )

    return Drawing("figure4", pretrainings(scale, [wanted]), draw)


def _matrix(tokens: Tensor):  # type: ignore[no-untyped-def]
    return tokens[0].mT.cpu().numpy()


def _not_zero(tokens: Tensor) -> float:
    return 100 * sparsity(tokens.double()).item()
