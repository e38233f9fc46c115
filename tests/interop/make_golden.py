"""Write golden_logits.json: what transformers computes for the models of formula.py.

Run it from the project's root with transformers installed: python -m tests.interop.make_golden
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
import transformers

from gptcli.checkpoints.tensors import tensor_file
from gptcli.interop.huggingface import config_to_hf, tensors_to_hf
from gptcli.storage import to_json
from tests.interop.formula import CONFIGS, IDS, formula_model

GOLDEN = Path(__file__).with_name("golden_logits.json")


def main() -> None:
    logits = {name: last_logits(name) for name in CONFIGS}
    content = {"transformers": transformers.__version__, "ids": IDS, "last_logits": logits}
    GOLDEN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def last_logits(name: str) -> list[list[float]]:
    """Logits after the last of IDS, (2, 23): GPT-2's in float64; the others norm, turn and route in float32 anyway."""
    model = formula_model(name)
    dtype = torch.float64 if name == "gpt2" else torch.float32
    with tempfile.TemporaryDirectory() as folder:
        config = to_json(config_to_hf(model.config, bos_token_id=0, eos_token_id=None))
        weights = tensor_file(tensors_to_hf(model.state_dict(), model.config), {})
        Path(folder, "config.json").write_bytes(config)
        Path(folder, "model.safetensors").write_bytes(b"".join(weights))
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    assert theirs.config.model_type == name
    with torch.no_grad():
        found: list[list[float]] = theirs(torch.tensor(IDS)).logits[:, -1].tolist()
    return found


if __name__ == "__main__":
    main()
