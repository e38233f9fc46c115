"""From a model and a prompt to text: prefill, decode one token at a time, filter, draw, stop."""
