"""Tables 1 to 6: the paper's numbers, and the measurements that give ours."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from crate_mae.models.architectures import model_config
from crate_mae.models.zoo import parameter_counts
from crate_mae.reproduce import paper_numbers as paper
from crate_mae.reproduce.comparison_table import MISSING, Cell, Table
from crate_mae.reproduce.run_scales import NAMES
from crate_mae.reproduce.scales import IMAGENET, SIZES, Model, Scale, Size, Variant, title
from crate_mae.reproduce.schedule import what_it_takes
from crate_mae.reproduce.tasks import Measurement, Place

FOR_FULL = "not run: for --scale full"
FOR_DESK = "not run: for --scale desk"
HOW_PROBED = (
    "Linear probing: logistic regression on standardised features of the frozen encoder's last layer, C from 1 to 1e5. "
    "'best C on test' is the paper's protocol, which is optimistic for every model; 'C by validation' chooses C "
    "without the test images."
)


@dataclass(frozen=True)
class Entry:
    """A cell before it is measured."""

    row: str
    column: str
    paper: float | None = None
    tasks: tuple[Measurement, ...] = ()
    """One for each seed."""
    read: Callable[[Any], float] = float
    """Gets the number from a task's result."""
    known: tuple[float, ...] = ()
    """Our numbers, if nothing has to be measured."""
    note: str = ""

    def measured(self, place: Place) -> Cell:
        """The cell, from the tasks' results."""
        if not all(place.has(data) for task in self.tasks for data in task.sets):
            return Cell(self.row, self.column, self.paper, note=MISSING)
        results = [result for task in self.tasks if (result := task.result(place)) is not None]
        values = tuple(map(self.read, results))
        note = self.note
        if len(results) < len(self.tasks):
            note = (
                f"{len(results)} seeds" if len(results) > 1 else "" if results else what_it_takes(self.tasks[0], place)
            )
        return Cell(self.row, self.column, self.paper, values or self.known, note)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A table before it is measured."""

    name: str
    heading: str
    unit: str
    entries: Sequence[Entry]
    notes: tuple[str, ...] = ()
    digits: int = 1
    paper_digits: int = 1
    plotted: list[str] | None = None
    """The columns of the picture; None for all."""
    by_column: bool = False
    """Whether the picture has a panel for each column, not for each row."""

    @property
    def tasks(self) -> list[Measurement]:
        """The measurements that the table needs."""
        return [task for entry in self.entries for task in entry.tasks]

    def measured(self, place: Place, seeds: int) -> Table:
        """The table, from the tasks' results."""
        title = f"Table {self.name.removeprefix('table')}. {paper.ITEMS[self.name].title}"
        notes = (*protocol(place, seeds), *self.notes) if self.tasks else self.notes
        cells = [entry.measured(place) for entry in self.entries]
        # For a set whose data are missing, only the rows that the paper has.
        kept = {cell.row for cell in cells if cell.paper is not None or cell.note != MISSING}
        cells = [cell for cell in cells if cell.row in kept]
        return Table(
            name=self.name,
            title=title,
            heading=self.heading,
            unit=self.unit,
            cells=tuple(cells),
            notes=notes,
            digits=self.digits,
            paper_digits=self.paper_digits,
        )


def protocol(place: Place, seeds: int) -> tuple[str, ...]:
    """What the mean is taken over, and how the models were trained."""
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    alone = "; a number without ± is of one seed" if seeds > 1 else ""
    return f"Ours: {over} of the weights, the order of the images and the masks{alone}.", place.scale.protocol


def table1(scale: Scale, seeds: int) -> Plan:
    """L, d, K, N and parameters: no training."""
    entries: list[Entry] = []
    plotted = ["CRATE", "CRATE, authors' layout", "CRATE visible", "ViT-MAE", "ViT-MAE, authors' layout", "ViT-MAE, He"]
    for size in SIZES:
        row = f"{size.capitalize()} (-{size[0].upper()})"
        config = model_config(NAMES["crate", size])
        shape = (config.depth, config.dim, config.heads, config.num_patches)
        for name, printed, own in zip("LdKN", paper.CONFIGURATIONS[size], shape, strict=True):
            entries.append(Entry(row, name, printed, known=(own,)))
        printed_crate, printed_vit = (paper.PARAMETERS[family][size] for family in ("crate", "vit"))
        _, crate, crate_theirs = parameter_counts(NAMES["crate", size])
        _, vit, vit_theirs = parameter_counts(NAMES["vit", size])
        _, visible, _ = parameter_counts(NAMES["visible", size])
        he = parameter_counts("vit_mae_base_he")[1] if size == "base" else None
        counts = [crate, crate_theirs, visible, vit, vit_theirs, he]
        papers = [None, printed_crate, None, None, printed_vit, None]
        for name, count, number in zip(plotted, counts, papers, strict=True):
            if count is not None:
                entries.append(Entry(row, name, number, known=(count / 1e6,)))
    notes = (
        "Parameters are exact, counted on the models themselves: all trainable, all used. The authors' layout adds "
        "fixed position tables and, for CRATE, biases, norms and a map that is never used; the paper counts these.",
        "L, d, K and N are CRATE's. ViT-MAE-S has 12 layers of width 384 and a decoder of 8 of 512; ViT-MAE-B 12 of "
        "768 and 8 of 768. He et al.'s own decoder for the Base encoder has 8 of 512.",
    )
    return Plan(
        name="table1",
        heading="model",
        unit="millions of parameters",
        entries=entries,
        notes=notes,
        digits=6,
        plotted=plotted,
    )


def table2(scale: Scale, seeds: int) -> Plan:
    """Fine-tuning and linear probing."""
    models = [(variant, size) for variant in scale.variants for size in SIZES]

    def printed(numbers: dict[str, Any], data: str, variant: Variant, size: str) -> float | None:
        return numbers.get(data, {}).get(variant, {}).get(size)

    entries: list[Entry] = []
    for data in scale.sets:
        for variant, size in models:
            trained = _seeds(variant, size, scale.source_of(data), seeds)
            tasks = tuple(scale.kinds.finetuned(model, data, False) for model in trained)
            number = printed(paper.FINETUNING, data, variant, size)
            entries.append(Entry(_tuned(data), title(variant, size), number, tasks, _test_accuracy))
    for data in scale.sets:
        for variant, size in models:
            trained = _seeds(variant, size, scale.source_of(data), seeds)
            number = printed(paper.PROBING, data, variant, size)
            entries += _probes(scale, data, title(variant, size), trained, number)
    for data in _left_out(scale):
        for row, numbers in ((_tuned(data), paper.FINETUNING), (_probed(data, FIRST), paper.PROBING)):
            for variant, size in models:
                if (number := printed(numbers, data, variant, size)) is not None:
                    entries.append(Entry(row, title(variant, size), number, note=FOR_DESK))
    return Plan(
        name="table2",
        heading="task",
        unit="per cent of the test images",
        entries=_by_row(entries),
        notes=(HOW_PROBED,),
    )


def table3(scale: Scale, seeds: int) -> Plan:
    """Pretrained against random."""
    # Nothing is masked in fine-tuning, so from random weights the visible form is the same model as the paper's.
    rows = [(variant, False, paper.PRETRAINED) for variant in scale.white_box]
    rows += [(variant, True, paper.RANDOM) for variant in scale.white_box if variant != "visible"]
    entries = []
    for data in (*scale.sets, *_left_out(scale)):
        source, column = scale.source_of(data), paper.SETS.get(data, data)
        for variant, random, numbers in rows:
            row = f"{title(variant, 'base')} ({'random init' if random else 'trained'})"
            number = numbers.get(data) if variant == "crate" else None
            if data in scale.sets:
                models = _seeds(variant, "base", source, seeds)
                tasks = tuple(scale.kinds.finetuned(model, data, random) for model in models)
                entries.append(Entry(row, column, number, tasks, _test_accuracy))
            elif number is not None:
                entries.append(Entry(row, column, number, note=FOR_DESK))
    notes: tuple[str, ...] = ("All weights are fine-tuned, with the same protocol.",)
    if "visible" in scale.variants:
        notes += (
            "There is no visible-only form from random weights: nothing is masked in fine-tuning, so both forms are "
            "the same model.",
        )
    return Plan(
        name="table3",
        heading="model",
        unit="per cent of the test images",
        entries=_by_row(entries),
        notes=notes,
        by_column=True,
    )


def table4(scale: Scale, seeds: int) -> Plan:
    """Reconstruction loss."""
    entries = []
    for data in scale.completed:
        for variant in scale.variants:
            row = f"{'ImageNet-1K' if data == IMAGENET else data}, {title(variant, 'base')}"
            for column, split in (("training loss", "train"), ("validation loss", "val")):
                number = paper.RECONSTRUCTION.get(variant, {}).get(split) if data == IMAGENET else None
                if data != IMAGENET or scale.source == IMAGENET:
                    tasks = tuple(scale.kinds.reconstructed(model) for model in _seeds(variant, "base", data, seeds))
                    entries.append(Entry(row, column, number, tasks, _loss_of(split)))
                elif number is not None:
                    entries.append(Entry(row, column, number, note=FOR_FULL))
    notes = (
        "Mean squared error over the masked patches (75 %), pixels normalised by the set's mean and standard "
        "deviation, images only resized. Validation is the set's own split, which no training saw.",
    )
    return Plan(
        name="table4",
        heading="model",
        unit="mean squared error",
        entries=entries,
        notes=notes,
        digits=3,
        paper_digits=3,
        by_column=True,
    )


def table5(scale: Scale, seeds: int) -> Plan:
    """Mask ratio."""
    columns = {
        f"{ratio:.0%} masked": ({"mask_ratio": ratio, "lambda_": paper.LAMBDA_OF_FIGURES}, number)
        for ratio, number in paper.BY_MASK_RATIO.items()
    }
    notes = (HOW_PROBED, f"lambda = {paper.LAMBDA_OF_FIGURES:g}, as in the paper.")
    return _ablation("table5", scale, seeds, columns, notes)


def table6(scale: Scale, seeds: int) -> Plan:
    """Lambda."""
    columns = {f"lambda = {value:g}": ({"lambda_": value}, number) for value, number in paper.BY_LAMBDA.items()}
    return _ablation("table6", scale, seeds, columns, (HOW_PROBED,))


def _ablation(
    name: str, scale: Scale, seeds: int, columns: dict[str, tuple[dict[str, float], float]], notes: tuple[str, ...]
) -> Plan:
    entries: list[Entry] = []
    for data in scale.probed:
        for variant in scale.white_box:
            for column, (settings, printed) in columns.items():
                trained = _seeds(variant, "base", scale.source_of(data), seeds, **settings)
                number = printed if data == "cifar10" and variant == "crate" else None
                entries += _probes(scale, data, column, trained, number, f"{title(variant, 'base')}, ")
    if "cifar10" in _left_out(scale):
        row = f"{title('crate', 'base')}, {_probed('cifar10', FIRST)}"
        entries += [Entry(row, column, number, note=FOR_DESK) for column, (_, number) in columns.items()]
    return Plan(
        name=name,
        heading="model",
        unit="per cent of the test images",
        entries=_by_row(entries),
        notes=notes,
        paper_digits=2,
    )


def _seeds(variant: Variant, size: Size, data: str, seeds: int, **settings: float) -> list[Model]:
    return [Model(variant, size, data, seed, **settings) for seed in range(seeds)]


def _left_out(scale: Scale) -> list[str]:
    """The paper's sets that are not of this scale."""
    return [data for data in paper.SETS if data not in scale.sets]


def _probes(
    scale: Scale, data: str, column: str, models: Iterable[Model], printed: float | None, of: str = ""
) -> Iterator[Entry]:
    """One entry for each kind of pooling and each way to choose C; the first is the paper's."""
    tasks = tuple(scale.kinds.probed(model, data) for model in models)
    for which in PROBES:
        number = printed if which == FIRST else None
        yield Entry(f"{of}{_probed(data, which)}", column, number, tasks, _accuracy_of(*which))


PROBES = {
    ("cls", "test"): "class token, best C on test",
    ("cls", "validation"): "class token, C by validation",
    ("mean", "test"): "mean of patches, best C on test",
    ("mean", "validation"): "mean of patches, C by validation",
}
FIRST = ("cls", "test")
"""The paper's."""


def _tuned(data: str) -> str:
    return f"fine-tuning, {paper.SETS.get(data, data)}"


def _probed(data: str, which: tuple[str, str]) -> str:
    return f"probing, {paper.SETS.get(data, data)}, {PROBES[which]}"


def _test_accuracy(result: dict[str, float]) -> float:
    return result["test_accuracy"]


def _loss_of(split: str) -> Callable[[Any], float]:
    return lambda result: result[f"{split}_loss"]


def _accuracy_of(pool: str, protocol: str) -> Callable[[Any], float]:
    def read(report: dict[str, Any]) -> float:
        found = next(result for result in report["results"] if result["pool"] == pool)
        return found["paper_protocol"]["accuracy"] if protocol == "test" else found["accuracy"]

    return read


def _by_row(entries: Iterable[Entry]) -> list[Entry]:
    """The entries row by row, in the order in which rows first appear."""
    rows: dict[str, list[Entry]] = {}
    for entry in entries:
        rows.setdefault(entry.row, []).append(entry)
    return [entry for row in rows.values() for entry in row]


TABLES: dict[str, Callable[[Scale, int], Plan]] = {
    table.__name__: table for table in (table1, table2, table3, table4, table5, table6)
}
