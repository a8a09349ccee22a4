"""Starts, makes the published model, reads a prompt, makes one token, ends.

python -m benchmarks.subjects.first_token
"""

if __name__ == '__main__':
  from benchmarks.subjects import decoding

  decoding.first_token(256)
