import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from crate_mae.errors import UserError
from crate_mae.evaluation.linear_probe import Probe, Strength, linear_probe, stratified

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def clusters(noise: float = 1.0) -> Split:
    """Three classes around three centres, on axes of very different scale: standardising must undo it."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 600)
    values = (3 * np.eye(3, 5)[labels] + noise * rng.normal(size=(600, 5))) * np.array([1, 1000, 1, 1, 1])
    return values[:400], labels[:400], values[400:], labels[400:]


def test_a_probe_reads_what_is_linear_and_nothing_else() -> None:
    train, train_labels, test, test_labels = clusters()
    noise = np.random.default_rng(1).normal(size=(600, 5))
    strengths = (0.01, 1.0, 100.0)
    good = linear_probe(train, train_labels, test, test_labels, strengths=strengths)
    bad = linear_probe(noise[:400], train_labels, noise[400:], test_labels, strengths=strengths)
    assert good.accuracy > 90
    assert bad.accuracy < 50
    assert good.C in strengths


def test_every_number_is_that_of_separate_scikit_learn_fits() -> None:
    train, train_labels, test, test_labels = clusters(2.0)
    held_out = stratified(train_labels, 3)
    probe = linear_probe(train, train_labels, test, test_labels, strengths=(0.01, 1.0), seed=3)
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    for strength in probe.strengths:
        model = LogisticRegression(C=strength.C, tol=1e-6)
        whole = model.fit(train, train_labels).score(test, test_labels)
        part = model.fit(train[~held_out], train_labels[~held_out]).score(train[held_out], train_labels[held_out])
        assert strength.test == pytest.approx(100 * whole)
        assert strength.validation == pytest.approx(100 * part)
        assert strength.converged


def test_the_strength_is_chosen_without_a_look_at_the_test_set() -> None:
    rng = np.random.default_rng(1)
    features, labels = rng.normal(size=(300, 40)), rng.integers(0, 2, 300)
    features[:, 0] += labels
    chosen, best = set(), set()
    for test_labels in (labels[200:], 1 - labels[200:]):
        probe = linear_probe(features[:200], labels[:200], features[200:], test_labels, strengths=(1e-3, 1e3))
        chosen.add(probe.C)
        best.add(probe.best_on_test.C)
        assert probe.best_on_test.test == max(strength.test for strength in probe.strengths) >= probe.accuracy
    assert len(chosen) == 1
    assert len(best) == 2  # the paper's protocol follows the test labels


def test_of_equal_strengths_the_least_is_chosen() -> None:
    rows = [Strength(1.0, 90, 80, True, 1), Strength(10.0, 95, 81, True, 1), Strength(100.0, 95, 85, True, 1)]
    probe = Probe(tuple(rows))
    assert (probe.C, probe.accuracy, probe.best_on_test.C) == (10.0, 81, 100.0)


def test_a_validation_split_of_its_own_chooses_and_then_joins() -> None:
    train, train_labels, test, test_labels = clusters(2.0)
    held_out = np.arange(400) >= 300
    probe = linear_probe(train, train_labels, test, test_labels, strengths=(1.0,), held_out=held_out)
    scaler = StandardScaler().fit(train)
    part = LogisticRegression(tol=1e-6).fit(scaler.transform(train[:300]), train_labels[:300])
    whole = LogisticRegression(tol=1e-6).fit(scaler.transform(train), train_labels)
    assert probe.strengths[0].validation == 100 * part.score(scaler.transform(train[300:]), train_labels[300:])
    assert probe.accuracy == pytest.approx(100 * whole.score(scaler.transform(test), test_labels))


def test_a_fifth_of_every_class_is_held_out() -> None:
    labels = np.repeat([4, 7, 9], [50, 500, 3])
    held_out = stratified(labels, 0)
    assert [int(held_out[labels == name].sum()) for name in (4, 7)] == [10, 100]
    assert (held_out == stratified(labels, 0)).all()
    assert (held_out != stratified(labels, 1)).any()


def test_advance_is_called_after_each_fit() -> None:
    notes: list[str] = []
    linear_probe(*clusters(), strengths=(1.0, 10.0), advance=notes.append)
    assert notes == ["C = 1", "C = 10"] * 2


@pytest.mark.parametrize(
    ("labels", "values", "word"),
    [
        (np.zeros(10, dtype=int), np.ones((10, 2)), "one class"),
        (np.arange(10) % 2, np.full((10, 2), np.nan), "finite"),
        (np.array([0, 1]), np.ones((2, 2)), "too few"),
    ],
)
def test_unsuitable_features_get_one_sentence(labels: np.ndarray, values: np.ndarray, word: str) -> None:
    with pytest.raises(UserError, match=word):
        linear_probe(values, labels, values, labels)


def test_classes_that_were_not_trained_on_count_as_errors() -> None:
    train, train_labels, test, test_labels = clusters(0.1)
    known = linear_probe(train, train_labels, test, test_labels, strengths=(1.0,)).accuracy
    strange = linear_probe(train, train_labels, test, test_labels + 7 * (test_labels == 2), strengths=(1.0,)).accuracy
    assert known == 100
    assert strange == pytest.approx(100 * (test_labels != 2).mean())
