"""Token files: a large corpus is read and tokenized once, then only looked up.

    texts of a source --texts.py--> text, ends, labels, names of each split
    these, and a tokenizer --tokens.py--> ids, ends, parts of each split

A folder of these files holds what `load` of a source returns. It is named by a
digest of the raw files (relative paths, sizes, times, samples of the content)
and of the options that say what becomes a document; a folder of ids in it by a
digest of the tokenizer. So a later start reads neither the raw files nor an
index of them, and another tokenizer finds the text.

The text is also the column of ids of bytes, which are their own; other
tokenizers have ids of their own, in 8, 16 or 32 bits. They are ids of whole
documents, or of the parts that a task encodes; a window of a document is a
range of its ids. So batches are those without files, bit for bit.

Files are read by position and not mapped: the pages of a map that an epoch
touches would all count as resident memory, and a position can be sent to
another process (arrays.py).

Parts of a corpus are read by several processes (workers.py). A folder appears
when it is complete (folder.py).
"""
