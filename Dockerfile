# nsqclient with its tools and embedded servers: docker build -t nsqclient .
FROM python:3.12.11-slim-bookworm AS build
WORKDIR /src
COPY setup.py setup.cfg README.rst LICENSE ./
COPY nsqclient ./nsqclient
COPY pyspark_nsq ./pyspark_nsq
RUN python -m venv /opt/nsqclient \
    && /opt/nsqclient/bin/pip install --no-cache-dir ".[admin,zstd]"

FROM python:3.12.11-slim-bookworm
COPY --from=build /opt/nsqclient /opt/nsqclient
# Archives and an nsqd's messages; a volume of the host must belong to this user.
RUN useradd --create-home --uid 10001 nsq \
    && mkdir /data \
    && chown nsq /data
USER nsq
WORKDIR /data
ENV PATH=/opt/nsqclient/bin:$PATH PYTHONUNBUFFERED=1
STOPSIGNAL SIGTERM
ENTRYPOINT ["nsqclient"]
CMD ["--help"]
