import numpy as np

from crate_mae.training.probe import linear_probe


def test_a_probe_reads_what_is_linear_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 600)
    centres = 3 * np.eye(3, 5)[labels] * np.array([1, 1000, 1, 1, 1])  # standardising must undo the scale
    clear = centres + rng.normal(size=(600, 5)) * np.array([1, 1000, 1, 1, 1])
    noise = rng.normal(size=(600, 5))
    strengths = (0.01, 1.0, 100.0)
    good = linear_probe(clear[:400], labels[:400], clear[400:], labels[400:], strengths)
    bad = linear_probe(noise[:400], labels[:400], noise[400:], labels[400:], strengths)
    assert good.accuracy > 90
    assert bad.accuracy < 50
    assert good.C in strengths


def test_the_strength_is_chosen_without_a_look_at_the_test_set() -> None:
    rng = np.random.default_rng(1)
    features, labels = rng.normal(size=(300, 40)), rng.integers(0, 2, 300)
    features[:, 0] += labels
    chosen = {
        linear_probe(features[:200], labels[:200], features[200:], test_labels, (1e-3, 1e3)).C
        for test_labels in (labels[200:], 1 - labels[200:])
    }
    assert len(chosen) == 1
