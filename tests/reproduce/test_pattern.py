"""The paper's own numbers against what is known of them, and ours by hand."""

from crate_mae.reproduce.desk import desk
from crate_mae.reproduce.pattern import claims, markdown
from crate_mae.reproduce.tables_1_to_6 import TABLES


def records(ours=None):  # type: ignore[no-untyped-def]
    """Tables of the desk with the paper's numbers, and no or the given ones of ours."""
    found = {}
    for name in ("table2", "table3", "table4", "table5", "table6"):
        plan = TABLES[name](desk(), 1)
        cells = [
            {
                "row": each.row,
                "column": each.column,
                "paper": each.paper,
                "ours": (ours or {}).get((each.row, each.column)),
            }
            for each in plan.entries
        ]
        found[name] = {"digits": plan.digits, "cells": cells}
    return found


def counted(words: str) -> str:
    of = records()
    (claim,) = [claim for claim in claims(of) if claim.words == words]
    return claim.counted(of[claim.table], "paper")


def test_the_papers_numbers() -> None:
    assert counted("fine-tuning: ViT-MAE-B above CRATE-B") == "4 of 4 (+9.0)"
    assert counted("probing, class token, best C on test: ViT-MAE-B above ViT-MAE-S") == "3 of 4 (+10.4)"
    assert counted("fine-tuning: CRATE-B pretrained above random weights") == "4 of 4 (+30.4)"
    assert counted("validation loss: that of CRATE-B above that of ViT-MAE-B") == "1 of 1 (+0.035)"
    row = "CRATE-B, probing, class token, best C on test"
    assert counted(f"{row}: 75% masked above 25% masked") == "1 of 1 (+6.2)"
    assert counted(f"{row}: lambda = 0.1 above lambda = 0.5") == "1 of 1 (+2.5)"


def test_only_what_we_measured_is_shown() -> None:
    assert markdown(records()) == "Nothing to compare yet.\n"
    row = "fine-tuning, CIFAR100"
    shown = markdown(records({(row, "ViT-MAE-S"): 20.0, (row, "CRATE-S"): 25.0})).splitlines()
    assert shown[2:] == ["| 2 | fine-tuning: ViT-MAE-S above CRATE-S | 4 of 4 (+6.5) | 0 of 1 (-5.0) |"]
