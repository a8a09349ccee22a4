"""Models as ONNX graphs.

A model is traced as jax traces it, with symbolic sizes B and L, and the traced
operations become ONNX operators one by one: so every cell, block and task has
an export without code of its own. Where ONNX has a recurrence as an operator,
the trace has a mark in its place (operators.py, export_devices.py).

    programs.py        what is traced: one step, or a row, of a run's model
    export_devices.py  how a model runs while it is traced
    operators.py       ONNX operators as jax primitives
    translation.py     from a traced program to a graph
    rules/             each operation of jax, by name
    graph.py           names, constants and sizes of a graph
    weights.py         parameters in a file, in several formats
    model_file.py      graph, weights and metadata on disk
"""
