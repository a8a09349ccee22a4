"""Layouts: how examples become batches. A file is a layout.

It has its options, `Config`, which extends config.Data, and

    lengths(corpus, data, seed) -> lengths of the rows of training batches,
      rising
    make(examples, shapes, data, seed, corpus) -> batches of these shapes, a
      grain.DatasetIterator

where `examples` is a loader.Ordered and `shapes` are (rows, length). The `seed`
decides the order of batches where the layout leaves it open; without one
it is a held-out pass, which ends with a batch of what is left. `corpus` is None
where only the lengths of examples are real.
"""
