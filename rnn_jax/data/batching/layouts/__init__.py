"""Layouts: how windows become batches. Each file is a layout.

It has `Config`, its options, which extends config.Data, and

    lengths(corpus, data, seed) -> row lengths of training batches, ascending
    plan(sizes, shapes, data, seed, levels) -> layout.Laid

where `sizes` are the predictions of the windows of a block, in order, and
`shapes` are the (rows, length) that batches may have, by ascending length. The
`seed` decides what the layout leaves open; without one nothing is shuffled.
`levels` are numbers by which buckets are split, or None. A plan is a function
of these, in NumPy: it reads no id. It has every window once, and no batch
without one; only the last batch may have rows without one.

Grain's own packing isn't used: it ends a batch at the first example that
doesn't fit, so it pads more.
"""
