"""The processes that train one run together: how they meet, call each other and end.

Rank 0 leads: it alone has the request, the run folder, logs and a display. The others follow: they wait for the calls
that it announces. A store that all processes reach keeps what concerns them outside of calls: stop signals, failures,
and the end. torchrun, or `gptcli train --devices`, starts the processes and describes them in environment variables.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from gptcli import errors
from gptcli.errors import GptcliError, LostRank, OutOfMemoryError, first_line, is_out_of_memory
from gptcli.runs.launched import has_launcher
from gptcli.runs.watching import Watch
from gptcli.training.out_of_memory import LESS_MEMORY
from gptcli.training.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

TIMEOUT = timedelta(minutes=30)
"""Longest wait of a rank for another within a call."""
BETWEEN_CALLS = timedelta(days=365)
"""Longest wait for a call: rank 0 may tokenize, save, or be paused for as long as it likes."""
HEARD_SECONDS = 10.0
"""Longest wait for rank 0 to take a failure, and for followers to leave."""
FAILURE_SECONDS = 2.0
"""Longest wait for the failure that has cut a connection."""

STOP, FAILURE, HEARD, ENDED, LEFT = "stop", "failure", "heard", "ended", "left"
"""Keys of the store."""


class Team:
    """The place of this process among those that train together, and its ways to the others."""

    def __init__(self, ranks: Ranks = ALONE, local_rank: int = 0, local_size: int = 1, max_restarts: int = 0) -> None:
        """`local_rank` and `local_size` count the processes of this machine."""
        self.ranks = ranks
        self.local_rank, self.local_size = local_rank, local_size
        self.max_restarts = max_restarts
        """How often the launcher starts all processes again after one was lost."""
        self.call = "joining the others"
        """What the ranks do together now, in words for errors."""
        self._has_nccl = False
        self._keys: Store | None = None
        self._calls: dist.ProcessGroup | None = None

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.ranks.rank == 0

    def meet(self) -> None:
        """Wait for all ranks, and connect to them."""
        from torch.distributed.distributed_c10d import PrefixStore  # a torch may have been built without it
        from torch.distributed.rendezvous import rendezvous

        keys, _, _ = next(rendezvous("env://", self.ranks.rank, self.ranks.size, timeout=TIMEOUT))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun keeps the store, with what it holds
        store = PrefixStore(f"{attempt}/{self.ranks.size}", keys)
        self._has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
        self._keys = PrefixStore("gptcli", store)
        backend = "cpu:gloo,cuda:nccl" if self._has_nccl else "gloo"
        dist.init_process_group(backend, store=store, rank=self.ranks.rank, world_size=self.ranks.size, timeout=TIMEOUT)
        self._calls = dist.new_group(backend="gloo", timeout=BETWEEN_CALLS)

    @property
    def _store(self) -> Store:
        assert self._keys, "this rank has met the others"
        return self._keys

    def announce(self, name: str, **values: Any) -> None:
        """Tell the followers which call comes next, with JSON values."""
        if self.ranks.size > 1:
            self.call = name
            text = json.dumps([name, values]).encode()
            dist.broadcast(torch.tensor([len(text)]), 0, group=self._calls)
            dist.broadcast(torch.frombuffer(bytearray(text), dtype=torch.uint8), 0, group=self._calls)

    def next_call(self) -> tuple[str, dict[str, Any]]:
        """Wait for rank 0 to announce a call; its name and values."""
        length = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(length, 0, group=self._calls)
        text = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(text, 0, group=self._calls)
        self.call, values = json.loads(bytes(text.tolist()))
        return self.call, values

    def least(self, number: int) -> int:
        """The least of the ranks' numbers."""
        if self.ranks.size == 1:
            return number
        least = torch.tensor([number])
        dist.all_reduce(least, dist.ReduceOp.MIN, group=self._calls)
        return int(least)

    def pass_on(self, signum: int) -> None:
        """Let rank 0 know of a signal to this process."""
        if not self.leads and self._keys:
            with suppress(RuntimeError):
                self._keys.set(STOP, str(signum))

    def listen(self) -> int:
        """Let rank 0 hear of a failure; returns the signal that another rank has received, 0 for none.

        For a thread: the main thread may wait for the rank that failed, until its end cuts the connection. NCCL may
        wait longer, so that there the rank that failed shows the error.
        """
        if not self.leads or not self._keys:
            return 0
        if not self._has_nccl and self._keys.check([FAILURE]):
            self._keys.set(HEARD, "1")
        return int(self._keys.get(STOP)) if self._keys.check([STOP]) else 0

    def end(self, *, failed: bool) -> None:
        """Rank 0 ends the training for all of them, and waits until they know."""
        if not self._keys:
            return  # nobody was met
        if self.leads:
            self._store.set(ENDED, "1")
            if not failed:
                self._wait_for(lambda: self._store.add(LEFT, 0) >= self.ranks.size - 1, HEARD_SECONDS)
        else:
            self._store.add(LEFT, 1)
        if not failed:
            dist.destroy_process_group()

    def error(self, raised: Exception) -> GptcliError:
        """The error with which this rank ends, after an exception of its own or because of another rank."""
        own = self._own_error(raised)
        if not self._keys:
            return own
        if self.leads:
            with suppress(RuntimeError):
                if is_lost(raised) and (other := self._failure_of_another()):
                    return other
                self.end(failed=True)
            return own
        with suppress(RuntimeError):
            if is_lost(raised) and self._wait_for(lambda: self._store.check([ENDED]), FAILURE_SECONDS):
                return GptcliError("Rank 0 has ended the training.")
            if is_lost(raised) and not _is_timeout(raised):
                return own
            facts = {"kind": type(own).__name__, "message": own.message, "hint": own.hint}
            self._store.set(FAILURE, json.dumps(facts))
            own.unheard = not self._wait_for(lambda: self._store.check([HEARD]), HEARD_SECONDS)
        return own

    def _own_error(self, raised: Exception) -> GptcliError:
        where = f"Rank {self.ranks.rank}"
        if isinstance(raised, GptcliError):
            message = raised.message if self.leads else f"{where}: {raised.message}"
            return raised if self.leads else type(raised)(message, raised.hint)
        if is_out_of_memory(raised):
            return OutOfMemoryError(f"{where} ran out of memory in '{self.call}'.", LESS_MEMORY)
        if _is_timeout(raised):
            minutes = TIMEOUT.total_seconds() / 60
            return LostRank(f"{where} waited {minutes:g} minutes for another rank in '{self.call}'.")
        if is_lost(raised):
            return LostRank(f"{where} lost the connection to another rank in '{self.call}'.")
        reason = f"{type(raised).__name__}: {first_line(raised)}"
        return LostRank(f"{where} failed in '{self.call}' ({reason}).")

    def _failure_of_another(self) -> GptcliError | None:
        """The error that another rank has noted, if it did; it may be about to."""
        if not self._wait_for(lambda: self._store.check([FAILURE]), FAILURE_SECONDS):
            return None
        self._store.set(HEARD, "1")
        facts = json.loads(self._store.get(FAILURE))
        kind: type[GptcliError] = getattr(errors, facts["kind"], GptcliError)
        return kind(facts["message"], facts["hint"])

    @staticmethod
    def _wait_for(condition: Callable[[], bool], seconds: float) -> bool:
        """Whether a condition becomes true within some seconds."""
        end = time.monotonic() + seconds
        while not (found := condition()) and time.monotonic() < end:
            time.sleep(0.02)
        return found


ALONE_TEAM = Team()


def is_lost(error: Exception) -> bool:
    """Whether torch failed to reach another rank."""
    words = ("gloo", "Connection closed by peer", "Connection reset by peer", "Broken pipe")
    is_of_torch = isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    return isinstance(error, dist.DistError) or is_of_torch or _is_timeout(error)


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and "timed out" in str(error).lower()


@contextmanager
def joined() -> Iterator[Team]:
    """The team of this process: one of torchrun's processes, else alone.

    An exception ends the training of all: rank 0 raises the error of the rank that failed first, a follower its own.
    """
    if not has_launcher():
        yield ALONE_TEAM
        return
    rank, size, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    team = Team(Ranks(rank, size), local_rank, local_size, int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")))
    with Watch(pass_on=team.pass_on, others=team.listen):
        try:
            if size > 1:
                team.meet()
            yield team
        except BaseException as error:
            if size == 1:
                raise
            if isinstance(error, Exception) and not isinstance(error, BrokenPipeError):  # of a reader of our output
                raise team.error(error) from error
            with suppress(RuntimeError):
                team.end(failed=True)
            raise
        if size > 1:
            team.end(failed=False)
