"""The search for the desk recipes."""

import pytest

from crate_mae.bench.race.search import COURSE, CRATE_MAE, FAMILIES, ROUNDS, Round, table, trial


@pytest.mark.parametrize("chosen", ROUNDS.values(), ids=ROUNDS)
def test_both_families_have_as_many_trials_and_every_trial_is_a_model(chosen: Round) -> None:
    assert tuple(base.title for base in chosen.bases) == tuple(chosen.trials) == FAMILIES
    assert len({len(trials) for trials in chosen.trials.values()}) == 1
    recipes = [trial(base, changes) for base in chosen.bases for changes in chosen.trials[base.title]]
    assert len({recipe.title for recipe in recipes}) == len(recipes)
    for recipe in recipes:
        assert COURSE.config(recipe).num_patches == 64


def test_a_trial_changes_the_recipe_and_the_model() -> None:
    base = CRATE_MAE
    changed = trial(base, {"batch": 32, "eta": 0.3, "lambda_": 0.2})
    assert changed.title == "CRATE-MAE: batch 32, eta 0.3, lambda 0.2"
    assert (changed.batch, changed.learning_rate) == (32, base.learning_rate)
    assert (COURSE.config(changed).eta, COURSE.config(changed).lambda_) == (0.3, 0.2)
    assert COURSE.config(changed).dim == COURSE.config(base).dim
    assert trial(base, {}).title == "CRATE-MAE: base"


def test_the_table_has_the_best_probe_of_a_family_first() -> None:
    def result(title: str, probe: float) -> dict[str, object]:
        numbers = {"parameters": 10**6, "images_per_second": 100.0, "loss": 0.5, "probe": probe, "knn": 30.0}
        return {"contestant": title, **numbers}

    results = [result("ViT-MAE: base", 60), result("CRATE-MAE: base", 50), result("CRATE-MAE: norm_pix_loss True", 51)]
    assert table({"results": results}).splitlines()[2:] == [
        "| CRATE-MAE | norm_pix_loss True | 1.00 M | 100 | 0.500 (normalised) | 51.0 | 30.0 |",
        "| CRATE-MAE | base | 1.00 M | 100 | 0.500 | 50.0 | 30.0 |",
        "| ViT-MAE | base | 1.00 M | 100 | 0.500 | 60.0 | 30.0 |",
    ]
