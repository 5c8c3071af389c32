# leap_rl and all that it needs, of the versions in requirements.lock.
#
#   docker build -t leap-rl .
#   docker run --rm leap-rl doctor
#   docker run --rm --shm-size 1g -v "$PWD/runs:/runs" --user "$(id -u):$(id -g)" leap-rl \
#     train --config demo --run_dir /runs/demo
#
# For GPUs: docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 -t leap-rl:cuda .
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG VERSION=1.0.0
LABEL org.opencontainers.image.title="leap_rl" \
      org.opencontainers.image.description="Learn the weights that agents on new games should start from" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

WORKDIR /opt/leap_rl

# Torch goes in first and by its exact version, so that no other package draws in another build.
COPY requirements.lock ./
RUN torch="$(grep '^torch==' requirements.lock)" \
    && pip install --quiet ${TORCH_INDEX:+--index-url ${TORCH_INDEX}} "${torch}" \
    # What only those who compile against torch or test it need.
    && cd "$(python -c "from importlib.util import find_spec as find; print(*find('torch').submodule_search_locations)")" \
    && rm -rf include test

# What leap_rl needs, clips, initializations of the hub, runs on S3, and TensorBoard's page; what its developers need stays out.
COPY pyproject.toml ./
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *p['optional-dependencies']['video'], *p['optional-dependencies']['hub'], *p['optional-dependencies']['s3'], 'tensorboard', sep='\n')" > /tmp/needs.txt \
    && pip install --quiet --constraint requirements.lock --requirement /tmp/needs.txt \
    && rm -rf /tmp/needs.txt \
    # Ray for Java.
    && rm -rf "$(python -c "from importlib.util import find_spec as find; print(*find('ray').submodule_search_locations)")/jars"

# Any user may run it (--user): the home is everybody's, as nothing of worth lies in it.
RUN useradd --create-home --uid 1000 leap && chmod 1777 /home/leap && install -d -m 1777 /runs
ENV HOME=/home/leap USER=leap

COPY README.md LICENSE NOTICE ./
COPY launch/container launch/ray/start-node bin/
COPY configs configs
COPY leap_rl leap_rl
RUN pip install --quiet --no-deps . && rm -rf build configs leap_rl leap_rl.egg-info

USER leap
WORKDIR /runs
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["/opt/leap_rl/bin/healthy"]
ENTRYPOINT ["leap-rl"]
CMD ["--help"]
