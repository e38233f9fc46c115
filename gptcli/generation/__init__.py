"""Text generation and scoring with a trained model: prefill, decode one token at a time, filter, draw, stop."""
