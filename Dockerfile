# attnc with NVRTC and cuDNN, to check, draw and compile specs on any machine with no installation:
#   docker build -t attnc .
#   docker run --rm -v "$PWD:/specs" attnc compile causal --target h200 -o causal.attnplan
# With a GPU (`docker run --gpus all`) `run`, `verify` and `bench` work, too. The first stage has what the build
# needs: `docker build --target setup .`
FROM debian:12 AS setup
WORKDIR /attnc
COPY .ci/setup .ci/setup
RUN .ci/setup

FROM setup
COPY . .
RUN .ci/build attnc && ln -s /attnc/build/attnc /usr/local/bin/attnc
WORKDIR /specs
ENTRYPOINT ["attnc"]
CMD ["help"]
