"""Numbers and sentences as the inspection report prints them."""

from crate_mae.analysis.streaming import Curve


def sentence(words: str) -> str:
    """The words with a capital letter and a full stop."""
    return f"{words[0].upper()}{words[1:]}."


def with_std(curve: Curve, index: int) -> str:
    """Mean ± standard deviation of one entry of a curve."""
    return f"{curve.mean[index]:.4g}\u00a0±\u00a0{curve.spread[index]:.2g}"
