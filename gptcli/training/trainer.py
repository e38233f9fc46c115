"""The training loop: a generator of events. Letters: B sequences of an update, T tokens each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from gptcli.checkpoints.checkpoint import Checkpoint, Progress
from gptcli.checkpoints.run_folder import StoredRun
from gptcli.config.presets import preset
from gptcli.dataset.folder import Dataset
from gptcli.errors import ModelFolderError, NonFiniteError
from gptcli.interop.huggingface import tensors_from_hf, tensors_to_hf
from gptcli.model.devices import torch_dtype
from gptcli.model.experts import Spread
from gptcli.model.gpt import GPT
from gptcli.model.loss import bits_per_unit
from gptcli.runs.budget import budget_end
from gptcli.runs.events import (
    CheckpointSaved,
    EvalMetrics,
    Event,
    Heartbeat,
    Note,
    RunFinished,
    SampleDrawn,
    SaveFailed,
    StepMetrics,
    StopReason,
)
from gptcli.runs.interrupt import UpdateStopped, unless_stopped
from gptcli.runs.samples import draw_sample
from gptcli.runs.saving import Saving
from gptcli.runs.start import starting_state
from gptcli.training.batches import training_batches
from gptcli.training.compilation import compile_hidden
from gptcli.training.evaluation import evaluate
from gptcli.training.gradients import Hidden, accumulate_gradients
from gptcli.training.optimizer import Optimizer
from gptcli.training.out_of_memory import room_for_gradients, room_for_optimizer
from gptcli.training.random_states import random_states, restore_random_states
from gptcli.training.schedule import learning_rate

HEARTBEAT_SECONDS = 10.0
"""Training that tells nothing for longer, since its steps are slow, shows after each step that it goes on."""


@dataclass(frozen=True)
class Update:
    """One update of the weights, as it lies on the device: reading a figure waits for that."""

    loss: Tensor
    """Of the batch before the update, in nats per token, ()."""
    grad_norm: Tensor
    """Before clipping, ()."""
    lr: float
    spread: Spread | None
    """How the tokens were spread over experts, of a model that has any."""


class Trainer:
    """One session of a run: from its start or a checkpoint to the end of the budget or a signal."""

    def __init__(
        self,
        run: StoredRun,
        dataset: Dataset,
        device: torch.device,
        checkpoint: Checkpoint | None = None,
        *,
        stop_signal: Callable[[], int] = lambda: 0,
        log_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        """`stop_signal` gives the signal that asked to stop, or 0.

        `log_bytes` flushes the metrics log to the disk and gives its length.
        """
        self.run = run
        self.config = run.config.train
        self.dataset = dataset
        self.device = device
        self.stop_signal = stop_signal
        self.log_bytes = log_bytes
        assert self.config.max_steps, "the config is not complete"
        assert self.config.micro_batch_size, "the config is not complete"
        assert self.config.dtype, "the config is not complete"
        self.max_steps = self.config.max_steps
        self.micro_batch_size = self.config.micro_batch_size
        self.dtype = torch_dtype(self.config.dtype)
        self.batches = training_batches(run.config, dataset)
        torch.manual_seed(self.config.seed)
        self.model = GPT(run.config.model).to(device)
        self.optimizer = Optimizer(self.model, run.config.optim, self.dtype)
        self.hidden: Hidden = self.model.hidden
        self.progress = Progress()
        self.saving = Saving(run)
        if checkpoint is not None:
            self.restore(checkpoint)
        elif self.config.init_from is not None:
            self.model.load_state_dict(starting_state(run.path, self.model))
        self._began = time.perf_counter() - self.progress.seconds  # as if all sessions had been one
        self.seconds_at_step = self.progress.seconds
        self._mark()

    def fit(self) -> Iterator[Event]:
        """Train until the budget ends, yielding what happens; the last event is `RunFinished`.

        Raises NonFiniteError, at the next logged step, when the loss or a gradient became NaN or infinite, and
        OutOfMemoryError with the micro-batch size that fits.
        """
        yield from self.compile()
        if self.config.init_from is not None and self.progress.val_loss is None:
            # The checkpoint stands before an update can replace the weights that the run folder started with.
            yield from self.evaluate()
            yield from self.save_checkpoint()
        while not (reason := self.stop_reason()):
            update = self.training_step()
            if update is None:
                continue  # a signal came first
            if self.progress.step == 1 or self.due(self.config.log_every):
                yield self.step_metrics(update)
            elif time.perf_counter() - self._mark_time > HEARTBEAT_SECONDS:
                yield Heartbeat(self.progress.step)
            if self.due(self.config.eval_every):
                yield from self.evaluate()
            if self.due(self.config.sample_every):
                yield self.sample()
            if self.due(self.config.save_every):
                yield from self.save_checkpoint()
        if self.saving.saved_step != self.progress.step:
            yield from self.save_checkpoint()
        if self.saving.lost_best:
            raise self.saving.lost_best
        signum = self.stop_signal() if reason == "interrupted" else 0
        yield RunFinished.after(self.progress, reason, seconds=self.seconds, signum=signum)

    def due(self, every: int) -> bool:
        """Whether something with this rhythm (0: never) happens now; at the last step everything else does."""
        return every > 0 and (self.progress.step % every == 0 or self.budget_end() is not None)

    def stop_reason(self) -> StopReason | None:
        """Why training ends now, if it does."""
        return self.budget_end() or ("interrupted" if self.stop_signal() else None)

    def budget_end(self) -> StopReason | None:
        """Which budget has run out. The clock is read once a step, so that all of a step agrees on being the last."""
        return budget_end(self.config, self.progress, self.seconds_at_step)

    def training_step(self) -> Update | None:
        """One update of the weights. Does not wait for the device.

        If a signal comes between two of its micro-batches, nothing changes, the step does not count, and None is given.
        """
        ids = self.next_batch()  # (B, T + 1)
        before = random_states(self.device) if len(ids) > self.micro_batch_size else {}  # nothing stops a single one
        spread = Spread() if self.run.config.model.n_expert else None
        try:
            with self.room_for_gradients(ids):
                loss = accumulate_gradients(
                    self.model,
                    self.hidden,
                    ids,
                    micro_batch_size=self.micro_batch_size,
                    dtype=self.dtype,
                    backward=unless_stopped(self.optimizer.backward, self.stop_signal),
                    expert_balance=self.run.config.optim.expert_balance,
                    spread=spread,
                )
        except UpdateStopped:
            self.model.zero_grad()
            restore_random_states(before, self.device)
            return None
        lr = learning_rate(self.run.config.optim, self.progress.step, self.max_steps)
        with room_for_optimizer(self.device):
            grad_norm = self.optimizer.step(lr, loss)
        self.progress.step += 1
        self.progress.tokens += ids[:, 1:].numel()
        self.seconds_at_step = self.seconds
        return Update(loss, grad_norm, lr, spread)

    def next_batch(self) -> Tensor:
        """Token ids of the next update on the device, (B, T + 1)."""
        ids = self.batches.batch(self.progress.step)
        if self.device.type == "cuda":
            ids = ids.pin_memory()  # the copy waits for the device otherwise
        return ids.to(self.device, non_blocking=True)

    def step_metrics(self, update: Update) -> StepMetrics:
        """The figures of the last update. Waits for the device."""
        self.check_finite()
        figures = update.loss, update.grad_norm, self.optimizer.skips, self.optimizer.skipped_spikes()
        loss, norm, overflows, spikes = torch.stack([figure.cpu().double() for figure in figures]).tolist()
        now, tokens = time.perf_counter(), self.progress.tokens
        rate = (tokens - self._mark_tokens) / max(now - self._mark_time, 1e-9)
        self._mark()
        spread = update.spread
        return StepMetrics(
            step=self.progress.step,
            loss=loss,
            lr=update.lr,
            grad_norm=norm,
            tokens_per_second=rate,
            seconds=self.seconds,
            skipped=int(overflows + spikes),
            spikes=int(spikes),
            experts=(spread.balance_loss.item(), spread.largest_load().item()) if spread else None,
        )

    def evaluate(self) -> Iterator[EvalMetrics | SaveFailed]:
        """Score the validation text; the best weights so far go into the run folder."""
        loss, progress, val = self.validation_loss(), self.progress, self.dataset.val
        best_loss, best_step = progress.best_val_loss, progress.best_step
        progress.val_loss = loss
        progress.evals_since_best += 1
        if best_loss is None or best_step is None or loss < best_loss:
            best_loss, best_step = loss, progress.step
            progress.evals_since_best = 0
            yield from self.saving.best_weights(self.weights(), step=progress.step, val_loss=loss)
            if not self.saving.lost_best:  # else the run folder still has those before
                progress.best_val_loss, progress.best_step = best_loss, best_step
        yield EvalMetrics(
            step=progress.step,
            loss=loss,
            bits_per_byte=bits_per_unit(loss, val.tokens, val.bytes),
            best_loss=best_loss,
            best_step=best_step,
            seconds=self.seconds,
        )
        self._mark()

    def validation_loss(self) -> float:
        """Mean loss over the validation text, in nats per token; raises NonFiniteError if it is not finite."""
        self.check_finite()
        loss = evaluate(
            self.model,
            self.dataset.val,
            batch_size=self.micro_batch_size,
            most_tokens=self.config.eval_tokens,
            dtype=self.dtype,
            hidden=self.hidden,
        )
        if not math.isfinite(loss):
            raise NonFiniteError(
                f"The validation loss became {loss} at step {self.progress.step:,}.", self._retry_hint()
            )
        return loss

    def sample(self) -> SampleDrawn:
        """Draw a short text from the model as it is; leaves training's random state alone."""
        text = draw_sample(self.model, self.dataset, seed=self.config.seed)
        self._mark()
        return SampleDrawn(self.progress.step, text)

    def save_checkpoint(self) -> Iterator[CheckpointSaved | SaveFailed]:
        """Write a checkpoint, then let go of the oldest ones."""
        self.check_finite()
        self.progress.seconds = self.seconds
        yield from self.saving.checkpoint(self.progress.step, self.checkpoint, lambda: bool(self.stop_reason()))
        self._mark()

    def checkpoint(self) -> Checkpoint:
        """The state of training, with the log so far on the disk."""
        self.progress.metrics_bytes = self.log_bytes()
        return Checkpoint(
            progress=self.progress,
            model=self.weights(),
            optimizer=self.optimizer.tensors(),
            random=random_states(self.device),
            scaler=self.optimizer.scaler_state(),
            threads=torch.get_num_threads(),
        )

    def weights(self) -> dict[str, Tensor]:
        """The model's weights under Hugging Face's names."""
        return tensors_to_hf(self.model.state_dict(), self.run.config.model)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint exactly: weights, optimizer, random state, counters, thread count.

        Raises ModelFolderError where it is not one of this run.
        """
        torch.set_num_threads(checkpoint.threads)
        state = tensors_from_hf(checkpoint.model, self.run.config.model, "The checkpoint")
        self.model.load_state_dict(state)
        try:
            self.optimizer.load_tensors(checkpoint.optimizer)
            self.optimizer.load_scaler_state(checkpoint.scaler)
            restore_random_states(checkpoint.random, self.device)
        except torch.OutOfMemoryError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:  # what torch says of tensors that do not fit
            step = f"The checkpoint of step {checkpoint.progress.step:,}"
            raise ModelFolderError(f"{step} does not fit its run: {error}.", "Restore the run from a copy.") from error
        self.progress = checkpoint.progress
        self.saving.saved_step = checkpoint.progress.step
        checkpoint.model.clear()  # the plan, which holds the checkpoint, lives as long as the training
        checkpoint.optimizer.clear()

    def compile(self) -> list[Note]:
        """Decide on torch.compile; what to tell of it."""
        ids = self.next_batch()  # (B, T + 1); sliced on the device, as updates do: strides are part of what is compiled
        with self.room_for_gradients(ids):
            self.hidden, note = compile_hidden(
                self.model,
                ids[: self.micro_batch_size],
                mode=self.config.compile,
                max_steps=self.max_steps,
                dtype=self.dtype,
                activation_checkpointing=self.config.activation_checkpointing,
            )
        self._mark()
        return [Note(note)] if note else []

    def room_for_gradients(self, ids: Tensor) -> AbstractContextManager[None]:
        """Around passes over ids (B, T + 1): raises OutOfMemoryError with the micro-batch size that fits."""
        return room_for_gradients(
            self.model, self.hidden, self.optimizer, ids, micro_batch_size=self.micro_batch_size, dtype=self.dtype
        )

    def check_finite(self) -> None:
        """Raise NonFiniteError if the loss or a gradient was bad. Waits for the device."""
        if failure := self.optimizer.failure():
            raise NonFiniteError(f"Training stopped at step {self.progress.step:,}: {failure}.", self._retry_hint())

    @property
    def seconds(self) -> float:
        """Training time over all sessions."""
        return time.perf_counter() - self._began

    def _mark(self) -> None:
        """Training speed is measured from here: evaluations, saves and samples do not count as slow steps."""
        self._mark_time, self._mark_tokens = time.perf_counter(), self.progress.tokens

    def _retry_hint(self) -> str:
        kept = f"The checkpoint of step {step:,} is kept. " if (step := self.saving.saved_step) else ""
        rate, usual = self.run.config.optim.lr, preset(self.run.config.preset)["optim"]["lr"]
        lower = f"{usual:g} as the preset has it" if rate > usual else f"{rate / 2:g}"
        return f"{kept}Try a lower --lr, such as {lower}, with --resume never."
