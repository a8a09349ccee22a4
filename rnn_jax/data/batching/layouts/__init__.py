"""Layouts: how windows become batches. Each file is a layout.

It has `Config`, its options, which extends config.Data, and

    lengths(corpus, data, seed) -> row lengths of training batches, ascending
    plan(layout.Block) -> layout.Laid

A plan is a function of the block's columns, in NumPy: it reads no id. It has
every window once, and no batch without one; only the last batch may have rows
without one.

Grain's own packing isn't used: it ends a batch at the first example that
doesn't fit, so it pads more.
"""
