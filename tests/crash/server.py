"""A fork server: imports everything once, then forks a child for each command line, which saves seconds of imports.

    python -m tests.crash.server FOLDER

trains once in FOLDER, since much of torch is imported only when it is used. Then it reads one JSON object per line:
`folder` to work in, `arguments` of gptcli, whether a thread writes what is saved, as it does for large models
(`in_thread`), how much text is encoded between two saves (`save_every_bytes`, with `shard_tokens`), and events on the
disk (`watch`, see `watching.py`) or changes of the product (`sabotage`). It answers with a line of JSON: `status`, the
exit code, or minus the signal. The output of the child is in `output.txt` of the folder.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from gptcli.__main__ import main
from gptcli.dataset import preparation, shards, writing
from gptcli.runs import saving
from gptcli.tokenizer import bytelevel
from gptcli.tokenizer.corpus import pattern
from tests.crash.disk import Disk
from tests.crash.sabotage import SABOTAGE
from tests.crash.sessions import TRAIN
from tests.crash.watching import WATCHES


def session(job: dict[str, Any]) -> None:
    """The child: one gptcli process."""
    os.chdir(job["folder"])
    output = os.open("output.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if "file_size" in job:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file beyond the limit then gives an error, not a signal
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_size"], job["file_size"]))
    if job.get("in_thread"):
        saving.DIRECT_BYTES = -1
    if "save_every_bytes" in job:
        preparation.SAVE_EVERY_BYTES = writing.SAVE_EVERY_BYTES = pattern.PIECE_CHARACTERS = job["save_every_bytes"]
        shards.MAX_SHARD_TOKENS, bytelevel._SHORT_CHARACTERS = job["shard_tokens"], 30
    for name in job.get("sabotage", []):
        SABOTAGE[name]()
    watch = WATCHES[job["watch"]["name"]](**job["watch"].get("options", {})) if job.get("watch") else None
    sys.argv = ["gptcli", *job["arguments"]]
    if watch is None:
        main()
    else:
        with Disk(Path(job["folder"]), watch):
            main()


def child(job: dict[str, Any]) -> None:
    """Run the session and end at once, so that no code of the server runs in the child."""
    code = 70
    try:
        session(job)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 71
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    """Answer jobs until standard input ends. Forking is safe with one thread only."""
    for line in sys.stdin:
        job = json.loads(line)
        assert threading.active_count() == 1
        process = os.fork()
        if process == 0:
            child(job)
        if "kill_after" in job:
            time.sleep(job["kill_after"])
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        sys.stdout.write(json.dumps({"status": os.waitstatus_to_exitcode(status)}) + "\n")
        sys.stdout.flush()


def warm_up(folder: str) -> None:
    """Train in this process, so that the children find everything imported."""
    here = os.getcwd()
    os.chdir(folder)
    sys.argv = ["gptcli", *TRAIN]
    answers, sys.stdout = sys.stdout, sys.stderr  # the result of the command is not an answer
    with suppress(SystemExit):
        main()
    sys.stdout = answers
    os.chdir(here)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm_up(sys.argv[1])
    serve()
