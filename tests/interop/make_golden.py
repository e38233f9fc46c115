"""Write golden_logits.json: what transformers' GPT-2 computes for the model of formula.py.

Run it from the project's root with transformers installed: python -m tests.interop.make_golden
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers

from gptcli.interop.huggingface import config_to_hf, tensors_to_hf
from tests.interop.formula import CONFIG, IDS, formula_model

GOLDEN = Path(__file__).with_name("golden_logits.json")


def main() -> None:
    config = transformers.GPT2Config(**config_to_hf(CONFIG, bos_token_id=0, eos_token_id=None))
    model = transformers.GPT2LMHeadModel(config).double().eval()
    model.load_state_dict(tensors_to_hf(formula_model().state_dict(), formula_model().config), strict=False)
    model.tie_weights()
    with torch.no_grad():
        logits = model(torch.tensor(IDS)).logits[:, -1]  # (2, 23)
    content = {"transformers": transformers.__version__, "ids": IDS, "last_logits": logits.tolist()}
    GOLDEN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
