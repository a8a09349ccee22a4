# The CPU by default; for a GPU (the host needs NVIDIA's container toolkit):
#   docker build --build-arg ACCELERATOR=cuda12 --tag rnn_jax .
#   docker run --rm --volume runs:/runs rnn_jax train --config=stdlib_bpe \
#     --workdir=/runs/demo
#   docker run --rm --volume runs:/runs --publish 8000:8000 \
#     --env RNN_JAX_API_KEYS=A_LONG_SECRET rnn_jax serve \
#     --workdir=/runs/demo --host=0.0.0.0
FROM python:3.12-slim-bookworm AS build
ARG ACCELERATOR=cpu
WORKDIR /source
COPY . .
RUN python -m venv /opt/rnn_jax \
  && extras=serve \
  && if [ "$ACCELERATOR" != cpu ]; then extras="$extras,$ACCELERATOR"; fi \
  && /opt/rnn_jax/bin/pip install --no-cache-dir --constraint constraints.txt \
    ".[$extras]"
# The C++ library, for a final image without a compiler.
RUN python -m venv --system-site-packages /build \
  && /opt/rnn_jax/bin/python -c \
    'import sysconfig; print(sysconfig.get_path("purelib"))' \
    > "$(/build/bin/python -c \
      'import sysconfig; print(sysconfig.get_path("purelib"))')/rnn_jax.pth" \
  && /build/bin/pip install --no-cache-dir --constraint constraints.txt \
    build lief setuptools twine ziglang \
  && /build/bin/python -m rnn_jax.native.wheel dist \
    --targets="linux-$(uname -m)" \
  && /opt/rnn_jax/bin/pip install --no-cache-dir --no-deps --force-reinstall \
    dist/*.whl

FROM python:3.12-slim-bookworm
COPY --from=build /opt/rnn_jax /opt/rnn_jax
RUN useradd --create-home --uid=1000 user \
  && install --directory --owner=user /runs
# By its number, which a cluster can compare with what it permits.
USER 1000
WORKDIR /runs
VOLUME /runs
EXPOSE 8000
ENTRYPOINT ["/opt/rnn_jax/bin/rnn-jax"]
