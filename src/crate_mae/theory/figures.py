"""Figures of the theory: arrays in, matplotlib figures out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#1f5fa8", "#d9661f", "#2a8a4a", "#777777"
Spread = dict[str, Any]
"""Mean, standard deviation and number of draws."""


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _caption(figure: "Figure", text: str) -> None:
    figure.supxlabel(text, fontsize=9, color="#333333")


def draw_all(numbers: dict[str, dict[str, Any]]) -> dict[str, "Figure"]:
    """Every figure of docs/theory.md, drawn from the numbers of the checks, by file name."""
    flat, solid = numbers["equivalence.fields_2d"], numbers["equivalence.fields_3d"]
    few, many = numbers["equivalence.fields_few_tokens"], numbers["equivalence.fields_many_tokens"]
    base, over_d = numbers["theorem.bound_at_base"], numbers["theorem.slope_over_d"]
    exact, printed = numbers["diffusion.exact_marginals"], numbers["diffusion.printed_signs"]
    distances = {**exact, **printed, **numbers["diffusion.structured_marginals"]}
    low_rank = numbers["completion.low_rank"]
    return {
        "theory-fields-2d": fields(flat["picture"], flat["sigma"], flat["alone"], flat["together"]),
        "theory-fields-3d": fields(solid["picture"], solid["sigma"], solid["alone"], solid["together"]),
        "theory-high-dimension": high_dimension(few["sigma"], few, many),
        "theory-mssa": mssa(numbers["equivalence.mssa_raw"]),
        "theory-theorem": theorem(base, over_d),
        "theory-marginals": marginals({name: row["kernel"] for name, row in distances.items()}),
        "theory-round-trip": round_trip(numbers["diffusion.round_trip"]),
        "theory-completion": completion(
            low_rank["rank"],
            low_rank["error"],
            numbers["completion.union_by_rank"],
            numbers["completion.whole_tokens"],
        ),
    }


def _means(rows: Sequence[Spread]) -> np.ndarray:
    return np.array([row["mean"] for row in rows])


def _band(axes: "Axes", x: Sequence[float | int], rows: Sequence[Spread], label: str, **style: Any) -> None:
    axes.errorbar(x, _means(rows), [row["std"] for row in rows], label=label, capsize=2, **style)


def fields(
    picture: dict[str, Any],
    sigma: Sequence[float],
    alone: dict[str, Sequence[Spread]],
    together: dict[str, Sequence[Spread]],
) -> "Figure":
    """The score and compression as arrows at the same tokens, and their mean cosine as sigma falls."""
    figure = _figure(14.0, 4.6)
    tokens = np.array(picture["tokens"])
    dimension = len(tokens)
    reach = 1.1 * np.abs(tokens).max()
    titles = {
        "score": "denoising: the score",
        "alone": "compression: $-\\nabla R^c$, each token coded alone",
        "together": f"compression: $-\\nabla R^c$, all {tokens.shape[1]} coded together",
    }
    for index, (name, title) in enumerate(titles.items(), 1):
        arrows = np.array(picture[name])
        # one scale for each panel: nine of ten arrows are shorter than a fifth of the largest coordinate
        arrows = arrows * (0.2 * np.abs(tokens).max() / np.quantile(np.linalg.norm(arrows, axis=0), 0.9))
        colour = BLUE if name == "score" else ORANGE if name == "alone" else GREEN
        if dimension == 2:
            axes = figure.add_subplot(1, 4, index)
            axes.quiver(*tokens, *arrows, color=colour, angles="xy", scale_units="xy", scale=1, width=0.006)
            axes.plot(*tokens, ".", color=GREY, ms=3)
            axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="$z_1$", ylabel="$z_2$")
        else:
            axes = figure.add_subplot(1, 4, index, projection="3d")
            axes.quiver(*tokens, *arrows, color=colour, lw=1, arrow_length_ratio=0.25)
            axes.plot(*tokens, ".", color=GREY, ms=2)
            axes.set(xlim=(-reach, reach), ylim=(-reach, reach), zlim=(-reach, reach))
            axes.view_init(elev=18, azim=-60)
            axes.set_box_aspect(None, zoom=1.05)
            axes.tick_params(labelsize=6)
            axes.locator_params(nbins=4)
        _subspaces(axes, np.array(picture["subspaces"]), reach)
        axes.set_title(title, fontsize=9)
    axes = figure.add_subplot(1, 4, 4)
    _band(axes, sigma, alone["cosine"], "each token coded alone", color=ORANGE, marker="o")
    _band(axes, sigma, together["cosine"], "300 tokens coded together", color=GREEN, marker="s")
    axes.set(xscale="log", xlabel="noise level $\\sigma$ ($\\epsilon = \\sigma$)", ylim=(-0.05, 1.05))
    axes.invert_xaxis()
    axes.set_title("mean cosine between $-\\nabla R^c$ and the score", fontsize=9)
    axes.legend(fontsize=8)
    union = "two lines in the plane" if dimension == 2 else "a plane and a line in space"
    _caption(
        figure,
        f"Tokens near {union}; the arrows of each panel have their own scale. The equivalence holds for a token coded "
        "alone.\nFor many tokens coded together, $-\\nabla R^c$ shrinks all of them towards zero, and the cosine falls "
        "to 0 with $\\sigma$.",
    )
    return figure


def _subspaces(axes: "Axes", bases: np.ndarray, reach: float) -> None:
    ends = reach * np.array([-1.0, 1.0])
    for basis in bases:
        directions = [column for column in basis.T if column.any()]
        if len(directions) == 1:
            axes.plot(*np.outer(directions[0], ends), color="black", lw=0.8, alpha=0.5)
        else:
            corners = [np.add.outer(a * ends, b * ends) for a, b in zip(*directions, strict=True)]
            axes.plot_surface(*corners, color="black", alpha=0.08)  # type: ignore[attr-defined]


def high_dimension(sigma: Sequence[float], few: dict[str, Any], many: dict[str, Any]) -> "Figure":
    """Mean cosine between -grad R^c and the score in 192 dimensions, with and without each token's own subspace."""
    figure = _figure(10.0, 4.6)
    for index, (rows, title) in enumerate([(few, "fewer tokens than p"), (many, "more tokens than p")], 1):
        axes = figure.add_subplot(1, 2, index)
        _band(axes, sigma, rows["raw"], "raw, $\\epsilon = \\sigma$", color=BLUE, marker="o")
        _band(
            axes, sigma, rows["across"], "own subspace removed, $\\epsilon = \\sigma$", color=BLUE, marker="o", ls=":"
        )
        _band(axes, sigma, rows["raw optimal"], "raw, the remark's $\\epsilon$", color=ORANGE, marker="s")
        _band(
            axes,
            sigma,
            rows["across optimal"],
            "own subspace removed, the remark's $\\epsilon$",
            color=ORANGE,
            marker="s",
            ls=":",
        )
        axes.set(xscale="log", xlabel="noise level $\\sigma$", ylim=(-0.05, 1.05), ylabel="mean cosine with the score")
        axes.invert_xaxis()
        axes.set_title(f"{rows['tokens per subspace']:.0f} tokens per subspace, p = {rows['p']}: {title}", fontsize=10)
        if index == 2:
            axes.legend(fontsize=8, loc="center right")
        else:
            axes.axhline(rows["limit"], color=GREY, lw=0.8)
            axes.annotate("$\\sqrt{1 - N/d}$", (sigma[3], rows["limit"] - 0.08), fontsize=9, color=GREY)
    _caption(
        figure,
        "d = 192, K = 6. With fewer tokens per subspace than p the cosine reaches $\\sqrt{1 - N/d}$ at small "
        "$\\epsilon$;\nat the remark's $\\epsilon$ only after removing the component in each token's own subspace.\n"
        "With more tokens per subspace than p the raw cosine falls to 0.",
    )
    return figure


def mssa(rows: dict[str, dict[str, Spread]]) -> "Figure":
    """The cosine between MSSA and -grad R^c at each scale of the tokens and each epsilon."""
    figure = _figure(9.0, 4.4)
    axes = figure.add_subplot()
    place = np.arange(len(rows))
    labels = {"raw": "raw", "beyond the span": "after removing the span of $\\{U_k U_k^T Z\\}$"}
    for shift, name, colour in ((-0.2, "raw", BLUE), (0.2, "beyond the span", ORANGE)):
        values = [row[name] for row in rows.values()]
        std = [value["std"] for value in values]
        axes.barh(place + shift, _means(values), 0.38, xerr=std, color=colour, label=labels[name])
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(place, [_tokens_and_epsilon(name) for name in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set(xlim=(-1, 1), xlabel="cosine between MSSA(Z) and $-\\nabla R^c(Z)$")
    axes.legend(fontsize=8, loc="upper right")
    _caption(
        figure,
        "Sizes of CRATE-Base, $\\sigma$ = 0.1. The raw cosine is negative: MSSA adds what the gradient subtracts.\n"
        "After removing the span of $\\{U_k U_k^T Z\\}$ from both, they agree in part, best at |z| = 4.",
    )
    return figure


def _tokens_and_epsilon(name: str) -> str:
    # "|z| = 1, eps 0.5" in symbols
    size = name.replace("sqrt d, as a layer norm makes it", "$\\sqrt{d}$ (layer norm)")
    return size.replace("eps ", "$\\epsilon$ = ")


def theorem(base: dict[str, Any], over_d: dict[str, Any]) -> "Figure":
    """Residual, bound and noise over sigma at Base; the slope of residual and bound in sigma as N / d falls."""
    figure = _figure(11.0, 4.4)
    axes = figure.add_subplot(1, 2, 1)
    sigma = base["sigma"]
    axes.loglog(sigma, _means(base["bound"]), "-", color=GREY, label="bound, constant set to 1")
    _band(axes, sigma, base["residual"], "residual $||Z^+ - $ predicted form$||$", color=ORANGE, marker="o")
    axes.loglog(sigma, _means(base["noise_norm"]), "--", color=BLUE, label="noise $||\\Delta||$")
    axes.set(xlabel="noise level $\\sigma$", ylabel="operator norm")
    axes.set_title("CRATE-Base: d = 768, N = 196, K = 12, p = 64", fontsize=10)
    axes.legend(fontsize=8)
    axes = figure.add_subplot(1, 2, 2)
    _band(axes, over_d["root"], over_d["slope"], "residual", color=ORANGE, marker="o")
    axes.plot(over_d["root"], over_d["bound"], "s-", color=GREY, label="bound")
    axes.axhline(1.5, color=BLUE, lw=0.8, ls="--")
    axes.annotate("3/2", (over_d["root"][0], 1.49), va="top", color=BLUE)
    axes.set(
        xscale="log",
        xlabel="$\\sqrt{N/d}$  (N = 4, K = 2, d from $2^{10}$ to $2^{50}$)",
        ylabel="slope of log norm against log $\\sigma$",
    )
    axes.invert_xaxis()
    axes.set_title("slope between $\\sigma$ = 0.01 and 0.0001", fontsize=10)
    axes.legend(fontsize=8)
    _caption(
        figure,
        "Left: the bound holds at Base, though its hypotheses are not met; at small $\\sigma$ the residual exceeds the "
        "noise.\nRight: the slope approaches 3/2 only where $\\sqrt{N/d}$ is far below $\\sigma$, which violates the "
        "assumption $N \\geq p$.",
    )
    return figure


def marginals(distances: dict[str, dict[str, float]]) -> "Figure":
    """Kernel distance between each pair of samples, and its median if both had the same distribution."""
    figure = _figure(9.0, 4.4)
    axes = figure.add_subplot()
    place = np.arange(len(distances))
    colours = [GREEN if row["p_value"] >= 0.002 else ORANGE for row in distances.values()]
    axes.barh(place, [row["distance"] for row in distances.values()], color=colours)
    axes.plot(
        [row["null_median"] for row in distances.values()],
        place,
        "k|",
        ms=14,
        mew=2,
        label="median without a difference",
    )
    for y, row in zip(place, distances.values(), strict=True):
        end = max(row["distance"], row["null_median"])
        axes.annotate(f"   p = {row['p_value']:.3f}", (end, y), va="center", fontsize=8)
    axes.set_yticks(place, list(distances), fontsize=8)
    axes.invert_yaxis()
    largest = max(row["distance"] for row in distances.values())
    axes.set(xscale="log", xlim=(None, 4 * largest), xlabel="squared kernel distance (MMD$^2$)")
    axes.legend(fontsize=8, loc="lower right")
    _caption(
        figure,
        "Top four: exact score and general formulas; no difference is detected. Next four: the signs printed in the "
        "appendix.\nLast three: $-\\nabla R^c/(2(T-t))$ in place of the score; SDE and ODE differ. Orange: p < 0.002.",
    )
    return figure


def round_trip(rows: dict[str, Any]) -> "Figure":
    """Distance from the start after integrating forward and back, against the number of steps."""
    figure = _figure(6.5, 4.4)
    axes = figure.add_subplot()
    styles = {"euler": (BLUE, "o"), "heun": (ORANGE, "s")}
    for name, row in rows.items():
        if name == "steps":
            continue
        colour, marker = styles[name.split(",")[0]]
        line = "-" if "twice" in name else ":"
        label = f"{name.capitalize()} (order {row['order']:.2f})"
        axes.loglog(rows["steps"], row["errors"], color=colour, marker=marker, ls=line, label=label)
    axes.set(xlabel="number of forward steps", ylabel="root mean square distance from the start")
    axes.set_xticks(rows["steps"], [str(n) for n in rows["steps"]], minor=False)
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=8)
    _caption(
        figure,
        "Probability flow with the exact score, t from 0.05 to 1 and back. On the same grid\n"
        "Heun's leading errors forward and back cancel, which gives order 3 instead of 2.",
    )
    return figure


def completion(
    ranks: Sequence[int],
    errors: Sequence[Spread],
    entries: dict[str, Spread],
    tokens: dict[str, Spread],
) -> "Figure":
    """Soft-impute against the rank; both methods on a union of subspaces, with entries or whole tokens masked."""
    figure = _figure(10.0, 4.2)
    axes = figure.add_subplot(1, 2, 1)
    _band(axes, list(ranks), errors, "soft-impute", color=BLUE, marker="o")
    axes.axhline(1, color=GREY, lw=0.8, label="filling in zeros")
    axes.legend(fontsize=8, loc="lower right")
    axes.set(yscale="log", xlabel="rank of 120 tokens in 60 dimensions", ylabel="relative error on masked entries")
    axes.set_title("half of the entries masked", fontsize=10)
    axes = figure.add_subplot(1, 2, 2)
    place = np.arange(2)
    for shift, name, colour in ((-0.2, "soft-impute", BLUE), (0.2, "known subspaces", ORANGE)):
        heights = [entries[name]["mean"], tokens[name]["mean"]]
        axes.bar(place + shift, heights, 0.38, color=colour, label=name)
        for x, height in zip(place + shift, heights, strict=True):
            axes.annotate(f"{height:.2g}", (x, height + 0.02), ha="center", fontsize=9)
    axes.axhline(1, color=GREY, lw=0.8)
    axes.set_xticks(place, ["half of the entries masked", "half of the tokens masked"])
    axes.set(ylim=(0, 1.5), ylabel="relative error on masked entries")
    axes.set_title("12 subspaces of dimension 5 that fill 60 dimensions", fontsize=10)
    axes.legend(fontsize=8, loc="upper left")
    _caption(
        figure,
        "Soft-impute completes masked entries of low-rank tokens. A union of subspaces has full rank, so the subspaces "
        "must be known.\nWhole masked tokens, as in masked autoencoding, can't be completed if tokens are independent.",
    )
    return figure
