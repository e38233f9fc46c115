"""One command that checks and measures gptcli on a GPU: correctness, speed and ablations (docs/gpu.md)."""
