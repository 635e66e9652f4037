"""The training loop of runs: step, log, evaluate, save, stop. Pretraining and fine-tuning give it a job."""

import math
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from rich.console import Console
from torch import Tensor, nn

from crate_mae.data.loader import Batch, Samples, training_batches
from crate_mae.data.transforms import sample_generator
from crate_mae.data.workers import kill_workers, stopping
from crate_mae.errors import UserError
from crate_mae.models.checkpoint import write_checkpoint
from crate_mae.models.image_model import ImageModel
from crate_mae.progress import progress
from crate_mae.training import training_state
from crate_mae.training.config import RunConfig
from crate_mae.training.distributed import Processes, join, micro_batch, whole
from crate_mae.training.evaluators import Evaluator
from crate_mae.training.interruption import Stopped, interruption
from crate_mae.training.objectives import Objective
from crate_mae.training.optim import cosine_schedule, optimiser_of, set_learning_rate
from crate_mae.training.run_folder import STOPPED, Run
from crate_mae.training.tensorboard import Board
from crate_mae.training.training_state import State, checkpoints_in

DTYPES = {"float32": torch.float32, "bfloat16": torch.float32, "float64": torch.float64}
"""Of the weights, by the precision of a run."""
STOPPING = "Stopping after this step, an evaluation and a checkpoint; a second Ctrl-C stops at once."


@dataclass(frozen=True)
class Job:
    """What is trained, on what, and how it is evaluated."""

    config: RunConfig
    objective: Objective
    samples: Samples[Any]
    evaluators: Mapping[str, Evaluator]
    layer_decay: float = 1.0
    draw: Callable[[ImageModel], Figure] | None = None
    """Draws a figure at each evaluation that can choose the best checkpoint."""

    @property
    def parameters(self) -> int:
        """Trainable parameters of the model."""
        return self.objective.model.num_parameters


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    step: int
    finished: bool
    """Whether all steps are done; otherwise it was asked to stop."""


def train(job: Job, run: Run, processes: Processes, console: Console, tensorboard: bool = False) -> Outcome:
    """Train from the newest good checkpoint of the run, or from the start, to the last step or until asked to stop."""
    config = job.config
    model = job.objective.model
    joined, optimiser = prepare(job, processes)
    state = resume(run, model, optimiser, processes, console)
    done = saved = state.step
    watch = Watch(job, run, state, processes)
    batches = batches_from(state.step, job, processes)

    def save() -> int:
        watch.settle()
        now = watch.state(done)
        training_state.save(
            run.checkpoints, model=model, optimiser=optimiser, state=now, config=config, processes=processes
        )
        return done

    with (
        stopping(batches),  # its workers end with the run, however it ends
        run.logging(),
        interruption(STOPPING if processes.is_main else "") as stop,
        progress(config.task, config.steps, console, done=state.step) as advance,
        Board(run.path, state.step, on=tensorboard and processes.is_main) as board,
    ):
        watch.board, watch.console = board, console
        if state.step == 0:
            watch.evaluate(0, config.evaluators)
        for step in range(state.step, config.steps):
            try:
                with stop.while_waiting(may_end=processes.world == 1):  # several processes must agree on the step
                    taken = list(islice(batches, config.accumulation))
            except Stopped:
                kill_workers()  # they may be busy with loading
                break
            rate = cosine_schedule(step, config.steps, config.warmup, config.learning_rate)
            set_learning_rate(optimiser, rate)
            seed_step(config.seed, step, processes.rank)
            loss, norm = take_step(joined, optimiser, taken, config, processes)

            done = step + 1
            watch.stepped(loss, norm)
            last, asked = done == config.steps, processes.any(stop.asked)
            if done % config.log_every == 0 or last:
                watch.log(done, rate)
            watch.evaluate(done, [name for name, every in config.evaluators.items() if last or done % every == 0])
            if last or done % config.checkpoint_every == 0:
                saved = save()
            advance(watch.words)
            if asked:
                break
        if done > saved:
            save()
        if done < config.steps:
            watch.evaluate_stopped(done)
    return Outcome(done, done >= config.steps)


def prepare(job: Job, processes: Processes) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The objective on its device, joined over the processes and compiled if the run asks for it; and its optimiser."""
    config, model = job.config, job.objective.model
    job.objective.to(processes.device, DTYPES[config.precision])
    for stack in model.stacks():
        stack.recompute = config.gradient_checkpointing
    joined = join(job.objective, processes)
    if config.compile:
        joined.compile()
    optimiser = optimiser_of(
        model, config.optimiser, config.learning_rate, config.weight_decay, config.betas, job.layer_decay
    )
    return joined, optimiser


def batches_from(step: int, job: Job, processes: Processes) -> Generator[Batch, None, None]:
    """This process's micro-batches from a step to the last one."""
    config = job.config
    return training_batches(
        job.samples,
        config.batch,
        range(step, config.steps),
        rank=processes.rank,
        world=processes.world,
        accumulation=config.accumulation,
        workers=config.workers,
        max_bad=config.max_bad,
    )


def resume(
    run: Run, model: ImageModel, optimiser: torch.optim.Optimizer, processes: Processes, console: Console
) -> State:
    """Restore model and optimiser from the newest readable checkpoint; its state, or a new one if there is none."""
    processes.wait()
    if processes.is_main:
        run.clean()
    for path in reversed(checkpoints_in(run.checkpoints)):
        try:
            state = training_state.restore(path, model, optimiser, processes)
        except UserError as error:
            console.print(f"{error} Resuming from the one before it.", highlight=False, soft_wrap=True)
            continue
        break
    else:
        state = State()
        optimiser.state.clear()  # an unreadable checkpoint may have left entries there
    processes.wait()
    if processes.is_main:
        run.restore_best()
        run.rewind(state.step)
        run.note_start(state.step, processes.world, processes.device)
    return state


def seed_step(seed: int, step: int, rank: int) -> None:
    """Make all that a step draws from torch's own generators (drop path, mixup) a function of these three."""
    torch.manual_seed(sample_generator(seed, step, rank, -1).initial_seed())


def take_step(
    joined: nn.Module,
    optimiser: torch.optim.Optimizer,
    batches: Sequence[Batch],
    config: RunConfig,
    processes: Processes,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """One step of the optimiser on a batch's micro-batches; this process's mean loss, and the gradient norm."""
    joined.train()
    device, dtype = processes.device, DTYPES[config.precision]
    loss = torch.zeros((), device=device, dtype=dtype)
    for number, batch in enumerate(batches, start=1):
        images = batch.images.to(device, dtype, non_blocking=True)
        with micro_batch(joined, last=number == len(batches)):
            with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
                share = joined(images, batch.given) / len(batches)
            share.backward()
        loss += share.detach()
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    if config.clip is not None:
        nn.utils.clip_grads_with_norm_(parameters, config.clip, norm)
    optimiser.step()
    optimiser.zero_grad()
    return loss, norm.full_tensor() if isinstance(norm, torch.distributed.tensor.DTensor) else norm


@dataclass
class Watch:
    """What a run reports: losses, metrics, evaluations, the best checkpoint, pictures."""

    job: Job
    run: Run
    began: State
    processes: Processes
    board: Board = field(init=False)
    console: Console = field(init=False)
    words: str = ""
    """The text beside the progress bar."""

    def __post_init__(self) -> None:
        self.best = self.began.best
        self.settled = list(self.began.pending)
        self.fresh: list[Tensor] = []
        """Losses and norms that are still on the device: reading each one would wait for it."""
        self.step = self.began.step
        self.evaluated = -1
        """The last step at which the metric that chooses the best checkpoint was evaluated."""
        self.clock = self.lap = time.monotonic()
        self.lap_step = self.step

    def stepped(self, loss: Float[Tensor, ""], norm: Float[Tensor, ""]) -> None:
        """Remember a step's loss and gradient norm."""
        self.step += 1
        self.fresh.append(torch.stack([loss, norm.to(loss)]))

    def settle(self) -> None:
        """Read losses and norms from the device, as means over processes; stop if one is not finite."""
        if not self.fresh:
            return
        pairs = self.processes.mean(torch.stack(self.fresh)).tolist()
        first = self.step - len(pairs)
        for step, (loss, norm) in enumerate(pairs, start=first):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                self._stop_at(step, loss, norm)
        self.settled += [(loss, norm) for loss, norm in pairs]
        self.fresh = []

    def _stop_at(self, step: int, loss: float, norm: float) -> None:
        config = self.job.config
        rate = cosine_schedule(step, config.steps, config.warmup, config.learning_rate)
        there = checkpoints_in(self.run.checkpoints)
        last = f"the last good checkpoint is {there[-1]}" if there else "there is no checkpoint before it"
        what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
        raise UserError(
            f"{what} at step {step + 1} with the learning rate {rate:.3g}; {last}. Start again with a lower "
            "learning_rate or a smaller clip."
        )

    def log(self, done: int, rate: float) -> None:
        """Write a line of metrics: means since the previous line."""
        self.settle()
        losses, norms = zip(*self.settled, strict=True)
        now = time.monotonic()
        batch = self.job.config.batch
        speed = batch * (done - self.lap_step) / max(now - self.lap, 1e-9)
        self.lap, self.lap_step = now, done
        values = {
            "loss": sum(losses) / len(losses),
            "gradient_norm": sum(norms) / len(norms),
            "learning_rate": rate,
            "epoch": done * batch / len(self.job.samples),
            "images_per_second": round(speed, 1),
            "seconds": round(self.seconds, 1),
        }
        self.settled = []
        self.words = f"loss {values['loss']:.4f}  {speed:,.0f} images/s"
        self._write(done, values)

    def evaluate_stopped(self, done: int) -> None:
        """Evaluate the last weights of a run that was asked to stop, for ``best``, after its checkpoint is saved.

        Its line of metrics is marked, and a best checkpoint that it replaces is kept: a resumed run drops the line and
        restores that one, so that it ends as if it had never been stopped.
        """
        if done > max(self.evaluated, 0):
            self.evaluate(done, [self.job.config.best_from], stopped=True)

    def evaluate(self, done: int, names: Collection[str], stopped: bool = False) -> None:
        """Run these evaluators and write their metrics; ``best_from`` also updates ``best`` and draws a picture."""
        due = [evaluator for name, evaluator in self.job.evaluators.items() if name in names]
        if not due:
            return
        self.settle()
        config, began = self.job.config, time.monotonic()
        model = whole(self.job.objective.model, self.processes).eval()
        with torch.no_grad():
            values = dict(pair for evaluator in due for pair in evaluator(model))
        if config.best_by in values:
            self.evaluated = done
            self._keep_best(done, model, values[config.best_by], stopped)
        self._write(done, values, stopped)
        shown = ", ".join(f"{name.replace('_', ' ')} {number:.4g}" for name, number in values.items())
        self.console.print(f"step {done} of {config.steps}: {shown}", highlight=False, soft_wrap=True)
        self.lap += time.monotonic() - began  # images/s counts training only

    def _keep_best(self, done: int, model: ImageModel, value: float, stopped: bool) -> None:
        config = self.job.config
        is_best = self.best is None or (value < self.best if config.lower_is_better else value > self.best)
        self.best = value if is_best else self.best
        if not self.processes.is_main:
            return
        if is_best:
            if stopped:
                self.run.copy_best()
            extras = model.extras() | {"step": done, "steps": config.steps}
            write_checkpoint(self.run.best, model.kind, model.config, model.state_dict(), extras)
        if self.job.draw:
            self.run.draw(self.job.draw(model), f"pictures/step-{done:08d}.png")

    def state(self, done: int) -> State:
        """The state that a checkpoint of this step saves."""
        return State(done, self.best, self.settled, round(self.seconds, 1))

    @property
    def seconds(self) -> float:
        """Time spent in the loop, over all starts."""
        return self.began.seconds + time.monotonic() - self.clock

    def _write(self, done: int, values: dict[str, float], stopped: bool = False) -> None:
        if self.processes.is_main:
            self.run.write(done, values | {STOPPED: True} if stopped else values)
            self.board.write(done, values)
