"""Speed on this machine: training, prefill and decoding, against the limits of the hardware."""
