"""Figures 5 to 11: layer-wise curves, completions, principal components and attention."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from crate_mae.analysis.attention import attention_maps
from crate_mae.analysis.completed_images import completion_panels, pictures
from crate_mae.analysis.components import components
from crate_mae.analysis.layerwise import LayerCurves, layer_curves
from crate_mae.analysis.quantities import QUANTITIES
from crate_mae.data.source import ImageSource, Subset
from crate_mae.figures import LayerPanel
from crate_mae.figures import layer_curves as draw_curves
from crate_mae.figures.comparison import completions_of
from crate_mae.figures.inside import attention as draw_attention
from crate_mae.figures.inside import components as draw_components
from crate_mae.reproduce import paper_numbers as paper
from crate_mae.reproduce.comparison_table import Cell
from crate_mae.reproduce.drawing import (
    Drawing,
    Made,
    figure_table,
    in_random_order,
    is_trained,
    look,
    model_of_figures,
    pretrainings,
    shown,
    stream,
    trained,
)
from crate_mae.reproduce.figures_1_to_4 import figure1, figure2, figure3, figure4
from crate_mae.reproduce.scales import Model, Scale, Variant, title
from crate_mae.reproduce.tables_1_to_6 import protocol
from crate_mae.reproduce.tasks import Place

OF_A_CLASS = 8


def figure5(scale: Scale, seeds: int) -> Drawing:
    """R^c and sparsity, layer by layer."""
    variants = scale.white_box
    models = {variant: [model_of_figures(scale, variant, seed) for seed in range(seeds)] for variant in variants}
    columns = {"compression": "R^c(Z^{l+1/2} given U^l), nats", "sparsity": "||A^{l+1}||_0 / (mN), of the code"}

    def draw(place: Place) -> Made:
        source = shown(place)
        source = Subset(source, in_random_order(source)[: place.scale.images])
        done = {variant: [each for each in of if is_trained(place, each)] for variant, of in models.items()}
        found = {variant: [_curves(place, model, source) for model in of] for variant, of in done.items()}
        # for each variant and quantity: seeds x layers
        means = {
            (variant, name): np.array([curves[name].mean for curves in of])
            for variant, of in found.items()
            for name in columns
        }
        cells = [
            Cell(f"{title(variant, 'base')}, layer {layer + 1}", columns[name], None, tuple(map(float, of[:, layer])))
            for layer in range(next(iter(means.values())).shape[1])
            for (variant, name), of in means.items()
        ]
        panels = [
            LayerPanel(
                f"${QUANTITIES[name].symbol}$, {QUANTITIES[name].unit}",
                {
                    title(variant, "base"): (of.mean(0), of.std(0, ddof=1) if len(of) > 1 else None)
                    for variant in variants
                    for of in [means[variant, name]]
                },
                title=QUANTITIES[name].title + " (band: standard deviation over seeds)" * (seeds > 1),
            )
            for name in columns
        ]
        notes = [
            *protocol(place, seeds),
            f"Each number is a mean over {len(source)} images of {place.scale.shown}, nothing masked; eps^2 = 0.01, "
            f"lambda = {paper.LAMBDA_OF_FIGURES:g}. The paper prints only curves, over 10000 images of ImageNet, and "
            "no epsilon.",
        ]
        return Made(
            figure_table("figure5", heading="layer", cells=cells, notes=notes, digits=3),
            {"figure5": draw_curves(panels)},
        )

    return Drawing("figure5", pretrainings(scale, [model for of in models.values() for model in of]), draw)


def _curves(place: Place, wanted: Model, source: ImageSource) -> LayerCurves:
    model = trained(place, wanted)
    with torch.no_grad():
        return layer_curves(model.encoder, (model.embed(images) for images in stream(model, source)))


def figure6(scale: Scale, seeds: int) -> Drawing:
    """Completions by CRATE and ViT-MAE."""
    return _completions("figure6", scale, slice(0, 6))


def figure8(scale: Scale, seeds: int) -> Drawing:
    """More completions."""
    return _completions("figure8", scale, slice(6, 16))


def _completions(name: str, scale: Scale, which: slice) -> Drawing:
    models = {title(variant, "base"): model_of_figures(scale, variant) for variant in scale.variants}

    def draw(place: Place) -> Made:
        chosen = in_random_order(shown(place))[which]
        panels = {}
        for words, wanted in models.items():
            model = trained(place, wanted)
            panels[words] = completion_panels(model, *look(place, model, chosen))
        errors = {words: of.errors for words, of in panels.items()}
        cells = [
            Cell(f"image {number + 1}", words, None, (of[number],))
            for number in range(len(chosen))
            for words, of in errors.items()
        ]
        cells += [Cell("mean", words, None, (float(np.mean(of)),)) for words, of in errors.items()]
        first = next(iter(panels.values()))
        completed = {words: of.completed for words, of in panels.items()}
        notes = [
            place.scale.protocol,
            f"Test images of {place.scale.shown} drawn at random, 75 % of the patches masked, the same masks for every "
            "model; mean squared error over the masked patches. Models of seed 0.",
        ]
        picture = completions_of(first.original, first.masked, completed, errors)
        return Made(
            figure_table(name, heading="image", unit="mean squared error", cells=cells, notes=notes, digits=3),
            {name: picture},
        )

    return Drawing(name, pretrainings(scale, models.values()), draw)


def figure7(scale: Scale, seeds: int) -> Drawing:
    """Components and attention of CRATE."""
    return _inside("figure7", scale, scale.white_box, classes=1, attended=4)


def figure9(scale: Scale, seeds: int) -> Drawing:
    """More components."""
    return _inside("figure9", scale, scale.white_box, classes=4, attended=0)


def figure10(scale: Scale, seeds: int) -> Drawing:
    """More attention maps."""
    return _inside("figure10", scale, scale.white_box, classes=0, attended=8)


def figure11(scale: Scale, seeds: int) -> Drawing:
    """Components and attention of ViT-MAE."""
    return _inside("figure11", scale, ["vit"], classes=1, attended=4)


def _inside(name: str, scale: Scale, variants: Sequence[Variant], classes: int, attended: int) -> Drawing:
    """Components of the images of ``classes`` classes, and attention maps of ``attended`` images."""
    models = {variant: model_of_figures(scale, variant) for variant in variants}

    def draw(place: Place) -> Made:
        source = shown(place)
        cells, drawn = [], {}
        for variant, wanted in models.items():
            model, words = trained(place, wanted), title(variant, "base")
            for class_name, members in _classes(source, classes):
                images, _ = look(place, model, members)
                found = components(model, images)
                file = f"{name}-pca-{variant}-{class_name}" if classes > 1 else f"{name}-pca-{variant}"
                drawn[file] = draw_components(pictures(model, images), found.first, found.kept, found.colours)
                row = f"{words}, class {class_name}, layer {found.layer}"
                for column, share in (
                    ("patches kept, %", found.kept.mean()),
                    ("border patches kept, %", found.border_kept),
                    ("squared norm in three components, %", found.energy.sum()),
                ):
                    cells.append(Cell(row, column, None, (100 * float(share),)))
            if attended:
                images, _ = look(place, model, in_random_order(source)[:attended])
                maps = attention_maps(model, images)
                drawn[f"{name}-attention-{variant}"] = draw_attention(pictures(model, images), maps.maps)
                peak = float(maps.maps.max((-2, -1)).mean()) * model.num_patches
                cells.append(Cell(f"{words}, attention, layer {maps.layer}", "mean peak of a map x N", None, (peak,)))
        notes = [
            place.scale.protocol,
            f"Test images of {place.scale.shown}, models of seed 0, lambda = {paper.LAMBDA_OF_FIGURES:g}, the last "
            "layer but one. Components by the paper's procedure, with the threshold in root mean squares of the first; "
            "attention by the paper's formula, every head, none picked by hand. A flat map's peak x N is 1.",
        ]
        return Made(figure_table(name, heading="model", cells=cells, notes=notes), drawn)

    return Drawing(name, pretrainings(scale, models.values()), draw)


def _classes(source: ImageSource, count: int) -> list[tuple[str, np.ndarray]]:
    """The first ``count`` classes in a random order of the images, and a few images of each."""
    order = in_random_order(source)
    labels = np.array([source.label(int(index)) for index in order])
    names = source.class_names or ()
    return [(names[label], order[labels == label][:OF_A_CLASS]) for label in list(dict.fromkeys(labels))[:count]]


FIGURES: dict[str, Callable[[Scale, int], Drawing]] = {
    figure.__name__: figure
    for figure in (
        figure1,
        figure2,
        figure3,
        figure4,
        figure5,
        figure6,
        figure7,
        figure8,
        figure9,
        figure10,
        figure11,
    )
}
