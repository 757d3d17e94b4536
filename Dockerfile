# streamvol in a small image: docker build -t streamvol .
# Run:
#   docker run --rm --device /dev/fuse --cap-add SYS_ADMIN --env AWS_ACCESS_KEY_ID --env AWS_SECRET_ACCESS_KEY \
#       --mount type=bind,source=/mnt,target=/mnt,bind-propagation=rshared streamvol mount s3://BUCKET /mnt/BUCKET --foreground
# (/mnt shared on the host, so that the mount is seen there; /mnt/BUCKET exists). In the foreground, since the container ends with
# its first process. A FUSE device that somebody else has mounted, passed as /dev/fd/N, needs neither the device nor the capability.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY src src
COPY tests/main.rs tests/main.rs
RUN cargo build --release --locked --bin streamvol

FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="streamvol" \
      org.opencontainers.image.description="A read-only FUSE filesystem that streams object storage to training jobs" \
      org.opencontainers.image.licenses="Apache-2.0"
# Only certificates are needed besides the C library: as root the program mounts by itself, without fusermount3.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/target/release/streamvol /usr/bin/streamvol
ENTRYPOINT ["/usr/bin/streamvol"]
CMD ["--help"]
