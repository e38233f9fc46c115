"""Encoding on a Ray cluster: the same batches of text as `tokenizer/processes.py`, encoded by the workers of a cluster.

This process reads the text, sends it in the tasks, and writes the ids that come back in order. So workers see no file
of this machine, but need the same gptcli. Ray runs a batch again whose worker was lost.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from gptcli import __version__
from gptcli.errors import ClusterError, MissingPackageError, UsageError, first_line, reason_of
from gptcli.tokenizer.document import TOKENIZER_FILE
from gptcli.tokenizer.processes import Encode, Encoding, in_batches
from gptcli.tokenizer.tokenizer import Tokenizer, parse_tokenizer

_CONNECT_SECONDS = 10
_MAX_AHEAD = 64
"""Batches that are sent and not yet written: more workers than half of that wait for this process to read text."""
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0"}
"""A cluster that is started here reports nothing to Ray's makers."""
_REMOTE = {"RAY_NUM_REDIS_GET_RETRIES": "1"}
"""Ray asks a server that does not answer for several minutes."""
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^:/\s]+):(?P<port>\d{1,5})")
_HINT = "Run `ray start --head` on a machine of the cluster and give its HOST:PORT, or use `ray = local`."


@contextmanager
def on_cluster(address: str) -> Iterator[Encoding]:
    """Encoding on the Ray cluster at `address`: HOST:PORT, ray://HOST:PORT, or `auto` for the one of this machine.

    `local` starts a cluster on this machine, which ends with the context. Raises UsageError for another form of
    address, and ClusterError without Ray or where no cluster answers.
    """
    _require_reachable(address)
    is_local = address == "local"
    with _environment(_ENVIRONMENT if is_local else _ENVIRONMENT | _REMOTE):
        ray = _library(address)
        _connect(ray, address, {"include_dashboard": False} if is_local else {})
    try:
        yield partial(_encoding, ray)
    finally:
        ray.shutdown()


def _require_reachable(address: str) -> None:
    if address in ("local", "auto"):
        return
    found = _ADDRESS.fullmatch(address)
    if not found:
        raise UsageError(f"`ray` cannot be '{address}'.", "Use local, auto, or HOST:PORT such as 10.0.0.1:6379.")
    try:
        socket.create_connection((found["host"], int(found["port"])), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise ClusterError(f"No Ray cluster can be reached at '{address}': {reason}.", _HINT) from None


def _library(address: str) -> ModuleType:
    try:
        import ray
    except ImportError:
        raise MissingPackageError(f"`ray = {address}`", "ray", "ray") from None
    found: ModuleType = ray
    return found


def _connect(ray: ModuleType, address: str, options: dict[str, Any]) -> None:
    """Connect this process. Ray's own handler of SIGTERM is taken back."""
    handler, was_terminated = signal.getsignal(signal.SIGTERM), False
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except SystemExit:
        was_terminated = True
    except (OSError, RuntimeError, ValueError) as error:
        reason = first_line(error).rstrip(".")
        raise ClusterError(f"No Ray cluster can be reached at '{address}': {reason}.", _HINT) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
    if was_terminated:
        signal.raise_signal(signal.SIGTERM)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values | before)
    try:
        yield
    finally:
        for name in values.keys() - before.keys():
            os.environ.pop(name, None)


@contextmanager
def _encoding(ray: ModuleType, tokenizer: Tokenizer, _text_bytes: int) -> Iterator[Encode]:
    if tokenizer.kind == "char":  # looking up characters is faster than sending them
        yield tokenizer.encode_texts
        return
    document = ray.put(tokenizer.to_json())  # once for each machine
    submit = partial(ray.remote(_encode_batch).remote, __version__, document)
    ahead = max(4, min(2 * int(ray.cluster_resources().get("CPU", 0)), _MAX_AHEAD))
    yield partial(in_batches, ahead, submit, partial(_ids, ray, tokenizer))


def _ids(ray: ModuleType, tokenizer: Tokenizer, batch: list[str], reference: Any) -> Iterable[np.ndarray]:
    """The ids of a batch. This process encodes it where workers were lost again and again."""
    try:
        ids: list[np.ndarray] = ray.get(reference)
        return ids
    except ray.exceptions.RayTaskError as error:
        encoded = list(tokenizer.encode_texts(batch))  # where the text is to blame, this raises
        if isinstance(error.cause, MemoryError):
            return encoded
        reason = first_line(error.cause or error).rstrip(".")
        hint = f"Install gptcli {__version__} with the extra `ray` on all of its machines."
        raise ClusterError(f"The Ray cluster cannot encode text: {reason}.", hint) from None
    except ray.exceptions.RayError:
        return tokenizer.encode_texts(batch)


def _encode_batch(version: str, document: str, texts: list[str]) -> list[np.ndarray]:
    """In a worker: the ids of each text."""
    if version != __version__:
        raise RuntimeError(f"a machine of it has gptcli {__version__} instead of {version}")
    return list(_tokenizer(document).encode_texts(texts))


@lru_cache(maxsize=1)
def _tokenizer(document: str) -> Tokenizer:
    os.environ.setdefault("RAYON_NUM_THREADS", "1")  # Ray starts a worker for each core
    return parse_tokenizer(document, Path(TOKENIZER_FILE))
