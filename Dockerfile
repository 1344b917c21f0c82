# The image of agent, extender and webhook. For the machine it is built on:
#     docker build --tag gpu-manager .
# For both architectures, with a builder that can do that (docker buildx create --use):
#     docker buildx build --platform linux/amd64,linux/arm64 .
# What it holds beside Python is put together by deploy/image.py. NVIDIA's driver is the host's.

ARG PYTHON=python:3.13-slim-bookworm

# On the machine that builds, whatever it builds for: nothing is emulated.
FROM --platform=$BUILDPLATFORM ${PYTHON} AS built
ARG TARGETARCH
RUN apt-get update \
    && apt-get install -y --no-install-recommends binutils gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
# setuptools and cffi as in pyproject.toml; ziglang compiles for the other architecture.
RUN pip install --no-cache-dir "setuptools>=77" "cffi>=2.0" wheel ziglang==0.17.0
WORKDIR /source
COPY LICENSE MANIFEST.in README.md pyproject.toml volume.conf Makefile ./
COPY native native
COPY examples examples
COPY vcuda_shim vcuda_shim
COPY gpumanager gpumanager
COPY deploy/image.py deploy/image.py
RUN python deploy/image.py /image --architecture "$TARGETARCH"

FROM ${PYTHON}
LABEL org.opencontainers.image.title="gpu-manager" \
      org.opencontainers.image.description="Share GPUs between Kubernetes containers" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=built /image /
ENV PYTHONPATH=/opt/gpu-manager \
    PYTHONDONTWRITEBYTECODE=1 \
    GRPC_ENABLE_FORK_SUPPORT=0
# A user without rights: extender and webhook need no more. The agent's pod says that it is root.
USER 65532:65532
ENTRYPOINT ["gpumanager"]
CMD ["--help"]
