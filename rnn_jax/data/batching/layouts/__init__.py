"""Layouts: how examples become batches. Each file is a layout.

It has `Config`, its options, which extends config.Data, and

    lengths(corpus, data, seed) -> row lengths of training batches, ascending
    make(examples, shapes, data, seed, corpus) -> batches of these shapes, a
      grain.DatasetIterator

where `examples` is a loader.Loader and `shapes` are (rows, length). The `seed`
sets the order of batches where the layout leaves it open; without one it is a
held-out pass, which ends with a batch of the remaining rows. `corpus` is None
where only the lengths of examples are real.

Grain's own packing and its elastic iterator aren't used: the first ends a batch
at the first example that doesn't fit, so it pads more; the second needs one
example for each row, in order, which no layout of texts has.
"""
