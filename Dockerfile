# The CPU by default; for a GPU (the host needs NVIDIA's container toolkit):
#   docker build --build-arg ACCELERATOR=cuda12 --tag rnn_jax .
#   docker run --rm --volume runs:/runs rnn_jax train --config=stdlib_bpe \
#     --workdir=/runs/demo
#   docker run --rm --volume runs:/runs --publish 8000:8000 \
#     --env RNN_JAX_API_KEYS=A_LONG_SECRET rnn_jax serve \
#     --workdir=/runs/demo --host=0.0.0.0
FROM python:3.12-slim-bookworm AS build
ARG ACCELERATOR=cpu
RUN apt-get update \
  && apt-get install --yes --no-install-recommends g++=4:12.* \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN python -m venv /opt/rnn_jax \
  && extras=serve \
  && if [ "$ACCELERATOR" != cpu ]; then extras="$extras,$ACCELERATOR"; fi \
  && /opt/rnn_jax/bin/pip install --no-cache-dir --constraint constraints.txt \
    ".[$extras]" \
  && /opt/rnn_jax/bin/pip install --no-cache-dir "setuptools>=77" \
  && /opt/rnn_jax/bin/python -m rnn_jax.native.wheel dist \
  && /opt/rnn_jax/bin/pip install --no-cache-dir --no-deps --force-reinstall \
    dist/*.whl

FROM python:3.12-slim-bookworm
COPY --from=build /opt/rnn_jax /opt/rnn_jax
RUN useradd --create-home user && install --directory --owner=user /runs
USER user
WORKDIR /runs
VOLUME /runs
EXPOSE 8000
ENTRYPOINT ["/opt/rnn_jax/bin/rnn-jax"]
