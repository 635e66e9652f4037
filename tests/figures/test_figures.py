"""Figures show the given numbers, with labelled axes."""

import numpy as np
import pytest

from crate_mae.figures import LayerPanel, inside, layer_curves

rng = np.random.default_rng(0)


def test_curves_show_layers_band_and_names() -> None:
    mean, spread = rng.random(5), rng.random(5)
    panels = [LayerPanel("nats", {"a": (mean, spread), "b": (2 * mean, None)}, ("level", 0.3), "title")] * 4
    figure = layer_curves(panels, "decoder layer", first=0)
    assert len(figure.axes) == 6  # two rows of three, the last two empty
    assert [ax.axison for ax in figure.axes] == [True] * 4 + [False] * 2
    ax = figure.axes[3]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("decoder layer", "nats", "title")
    one, other, level = ax.get_lines()
    assert np.array_equal(one.get_xdata(), np.arange(5))
    assert np.array_equal(one.get_ydata(), mean)
    assert np.array_equal(other.get_ydata(), 2 * mean)
    assert level.get_ydata()[0] == 0.3
    band = ax.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx(((mean - spread).min(), (mean + spread).max()))
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["a", "b", "level"]
    assert not figure.legends


def test_an_untrained_curve_is_a_thin_dashed_line_of_the_same_colour() -> None:
    trained, untrained = rng.random((2, 4))
    panel = LayerPanel("nats", {"a": (trained, None), "b": (2 * trained, None)}, untrained={"b": untrained})
    figure = layer_curves([panel])
    _, line, dashed = figure.axes[0].get_lines()
    assert np.array_equal(dashed.get_xdata(), np.arange(1, 5))
    assert np.array_equal(dashed.get_ydata(), untrained)
    assert (dashed.get_linestyle(), dashed.get_color()) == ("--", line.get_color())
    assert dashed.get_linewidth() < line.get_linewidth()
    (legend,) = figure.legends
    assert [text.get_text().split(":")[0] for text in legend.get_texts()] == ["this model", "untrained"]


def test_heat_maps_share_one_scale_and_are_at_most_twelve() -> None:
    matrices = rng.random((24, 3, 3))
    figure = inside.incoherence(matrices, range(1, 25), "cosine", 1.0)
    *maps, bar = figure.axes
    assert [ax.get_title() for ax in (maps[0], maps[11])] == ["layer 1", "layer 24"]
    assert len(maps) == 12
    assert np.array_equal(maps[11].images[0].get_array(), matrices[23])
    assert {ax.images[0].get_clim() for ax in maps} == {(0, 1)}
    assert bar.get_ylabel() == "cosine"


@pytest.mark.parametrize("channels", [1, 3])
def test_attention_is_drawn_over_its_image(channels: int) -> None:
    images, maps = [rng.random((8, 12, channels))] * 2, rng.random((2, 9, 4, 6))
    figure = inside.attention(images, maps)
    *axes, bar = figure.axes
    assert "peak" in bar.get_ylabel()
    drawn = [ax for ax in axes if len(ax.images) == 2]
    assert len(drawn) == 18
    for index, ax in enumerate(drawn):
        one = maps[index // 9, index % 9]
        np.testing.assert_allclose(ax.images[1].get_array(), one / one.max())
        assert ax.get_title() == f"head {index % 9 + 1}\npeak {one.max():.2g}"
        assert ax.images[1].get_extent() == [0, 12, 8, 0]
    assert len([ax for ax in inside.attention(images, maps, [4]).axes if len(ax.images) == 2]) == 2


def test_components_show_the_kept_patches() -> None:
    kept = rng.random((3, 4, 4)) > 0.5
    colours = np.where(kept[..., None], rng.random((3, 4, 4, 3)), np.nan)
    figure = inside.components([rng.random((8, 8, 1))] * 3, rng.normal(size=(3, 4, 4)), kept, colours)
    shown = figure.axes[6].images[0].get_array()
    assert np.array_equal(shown[..., 3] > 0, kept[0])
    np.testing.assert_allclose(shown[kept[0], :3], colours[0][kept[0]])
    assert figure.axes[9].get_ylabel()


def test_completions_show_their_errors() -> None:
    images = [rng.random((8, 8, 3))] * 2
    figure = inside.completions_at(images, [images] * 2, [images] * 2, [[0.1, 0.2], [0.3, 0.4]], ["25%", "90%"])
    assert len(figure.axes) == 10
    labels = [ax.get_xlabel() for ax in figure.axes]
    assert [label for label in labels if label] == ["error 0.100", "error 0.200", "error 0.300", "error 0.400"]
    assert [figure.axes[row].get_ylabel() for row in (0, 2, 4)] == ["original", "25%\nmasked", "25%\ncompleted"]
