"""GGUF, the file of llama.cpp: its header, its tensors, its vocabularies.

    reader.py         a file, read with care
    writer.py         the same, written by package `gguf`
    blocks.py         float32, 16 bits and blocks of 8 or 4 bits
    tensors.py        which part of ours each tensor is
    fields.py         metadata that are keys of a config.json
    rope.py           those of rotary positions
    vocabulary.py     tokens, merges, scores, and the chat template
    architectures/    one of llama.cpp's a file

An architecture is described by the config.json that transformers has for it,
and its tensors by the table of formats/hf, under llama.cpp's names.
"""
