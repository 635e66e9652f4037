"""Peak memory of a training step, each contestant in a process of its own.

The result is the largest number of bytes in torch's allocator at any time during a step, less those before it: torch's
profiler reports every block that is allocated and freed, also within a kernel. Weights, gradients and Adam's state
exist before the step (gradients are set to zero, not to None), so only memory beyond these is counted. This
number is the same each time. The process's resident peak is recorded too: it includes what torch's allocator does not
see, such as the buffers of the matrix products, and varies more.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.profiler import ProfilerActivity, profile

from crate_mae.bench.contestants import (
    BASE,
    LISTING,
    MISSING,
    OURS,
    SHALLOW,
    TRAINEES,
    TRANSFORMERS,
    Trainee,
    Work,
    installed,
)
from crate_mae.bench.harness import Spread
from crate_mae.bench.table import Row, at_most
from crate_mae.errors import UserError
from crate_mae.models.config import ModelConfig
from crate_mae.progress import progress


@dataclass(frozen=True)
class Sizes:
    """Models and batches of the measurement."""

    config: ModelConfig = BASE
    batches: tuple[int, ...] = (16, 32)


WHOLE, QUICK = Sizes(), Sizes(SHALLOW, (2,))


@dataclass(frozen=True)
class Peak:
    """Bytes."""

    above: int
    """The peak, beyond weights, gradients and Adam's state."""
    state: int
    """Weights, gradients and Adam's state."""
    resident: int
    """The process's resident peak, including everything."""


def rows(sizes: Sizes, console: Console) -> Iterator[Row]:
    """A row for each batch size and each other contestant."""
    names = installed(TRAINEES)
    for batch in sizes.batches:
        work = Work(sizes.config, batch)
        peaks: dict[str, Peak] = {}
        with progress(f"memory, batch {batch}", len(names), console) as advance:
            for name in names:
                peaks[name] = in_a_process_of_its_own(name, work)
                advance(name)
        for other, goal in ((LISTING, at_most(0.55)), (TRANSFORMERS, None)):
            what, label = f"peak memory of a training step, {work}", f"memory of a step, batch {batch}"
            if other not in peaks:
                yield Row(label, what, other, None, note=MISSING)
                continue
            ratio = peaks[OURS].above / peaks[other].above
            pair = {name: peaks[name] for name in (OURS, other)}
            yield Row(
                label,
                what,
                other,
                Spread.of([ratio]),
                goal=goal,
                note="beyond weights, gradients and Adam's state",
                peak_bytes={name: peak.above for name, peak in pair.items()},
                details={"peaks": {name: asdict(peak) for name, peak in pair.items()}},
            )


def peak(trainee: Trainee) -> Peak:
    """The peak of one training step, with zero gradients and Adam's state allocated before it."""
    parameters = [parameter for group in trainee.optimiser.param_groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    trainee.optimiser.step()  # allocates its state
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        trainee.loss().backward()
        trainee.optimiser.step()
        trainee.optimiser.zero_grad(set_to_none=False)
    assert watched.profiler is not None
    events = [event for event in watched.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    moments = [value for state in trainee.optimiser.state.values() for value in state.values()]
    state = sum(tensor.nbytes for tensor in (*parameters, *gradients, *moments))
    return Peak(most, state, resident_peak())


def resident_peak() -> int:
    """The largest resident size of this process in bytes; 0 if the system does not report it.

    Not ``getrusage``, which for a new process starts at the size of its parent.
    """
    file = Path("/proc/self/status")
    lines = file.read_text().splitlines() if file.exists() else []
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def in_a_process_of_its_own(name: str, work: Work) -> Peak:
    """``peak`` in a new interpreter with the same number of threads."""
    asked = {"name": name, "threads": torch.get_num_threads(), **work.to_dict()}
    command = [sys.executable, "-m", __name__, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.splitlines() or [f"it ended with code {done.returncode}, perhaps out of memory"]
        raise UserError(f"the memory of {name} at batch {work.batch} could not be measured: {said[-1]}")
    return Peak(**json.loads(done.stdout.splitlines()[-1]))


def main(asked: dict[str, Any]) -> None:
    """One contestant's peak as JSON on stdout."""
    torch.set_num_threads(asked["threads"])
    print(json.dumps(asdict(peak(TRAINEES[asked["name"]](Work.from_dict(asked))))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
