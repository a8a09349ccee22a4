"""Tests of rnn_jax/interop/onnx."""
