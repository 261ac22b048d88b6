# One node, without the built-in model: docker build --tag holdfast .
# The locks decide every version by hash, except for the image of Python itself. To fix that too, name it by its digest:
#   docker build --build-arg PYTHON_IMAGE=python:3.13-slim@sha256:... --tag holdfast .
ARG PYTHON_IMAGE=python:3.13-slim


FROM ${PYTHON_IMAGE} AS build

WORKDIR /build
COPY requirements/build.txt requirements/server.txt requirements/mcp.txt requirements/postgres.txt \
    requirements/metrics.txt requirements/otel.txt requirements/oidc.txt requirements/
RUN python -m venv /tools \
    && /tools/bin/python -m pip install --no-cache-dir --require-hashes -r requirements/build.txt
RUN python -m venv --without-pip /opt/holdfast \
    && /tools/bin/python -m pip --python /opt/holdfast/bin/python install --no-cache-dir --require-hashes \
        -r requirements/server.txt -r requirements/mcp.txt -r requirements/postgres.txt \
        -r requirements/metrics.txt -r requirements/otel.txt -r requirements/oidc.txt

COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN /tools/bin/python -m hatchling build -t wheel -d /wheel \
    && /tools/bin/python -m pip --python /opt/holdfast/bin/python install --no-cache-dir --no-index --no-deps /wheel/*.whl


FROM ${PYTHON_IMAGE}

# The number is fixed, so that a volume keeps its owner when the image is built again.
RUN groupadd --gid 10001 holdfast \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin holdfast \
    && install --directory --owner=10001 --group=10001 --mode=0700 /data
COPY --from=build /opt/holdfast /opt/holdfast

ENV PATH=/opt/holdfast/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOLDFAST_DATA=/data \
    HOLDFAST_HOST=0.0.0.0
USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
EXPOSE 8787
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:%s/ready' % os.environ.get('HOLDFAST_PORT', 8787), timeout=3)"]

CMD ["holdfast", "serve"]
