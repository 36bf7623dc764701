// limits.c - see limits.h.
#include "server/http/limits.h"
#include "base/log.h"

const struct server_limits server_limits_default = {
    .n_connections = 4096,
    .n_queued = 256,
    .n_choices = 16,
    .n_stops = 16,
    .stop_bytes = 1024,
    .header_bytes = 32 << 10,
    .body_bytes = 8 << 20,
    .bodies_bytes = 64 << 20,
    .logits_bytes = 1 << 30,
    .pixels = 50000000,
    .head_s = 30,
    .body_s = 60,
    .write_s = 30,
    .keep_alive_s = 15,
    .drain_s = 30,
    .retry_after_s = 1,
};

static const struct row {
    const char *what;
    size_t at;
    const char *unit, *beyond;
} rows[] = {
    { "connections", offsetof(struct server_limits, n_connections), "", "closed" },
    { "queue", offsetof(struct server_limits, n_queued), "requests", "429 with Retry-After" },
    { "choices", offsetof(struct server_limits, n_choices), "answers of one request", "400" },
    { "stop strings", offsetof(struct server_limits, n_stops), "", "400" },
    { "stop string", offsetof(struct server_limits, stop_bytes), "bytes", "400" },
    { "headers", offsetof(struct server_limits, header_bytes), "bytes", "431" },
    { "body", offsetof(struct server_limits, body_bytes), "bytes", "413" },
    { "all bodies", offsetof(struct server_limits, bodies_bytes), "bytes", "503 with Retry-After" },
    { "logits of prompts", offsetof(struct server_limits, logits_bytes), "bytes", "400" },
    { "pictures", offsetof(struct server_limits, pixels), "pixels of one request", "400" },
    { "time for headers", offsetof(struct server_limits, head_s), "s", "closed" },
    { "time for a body", offsetof(struct server_limits, body_s), "s", "closed" },
    { "time without reading", offsetof(struct server_limits, write_s), "s", "closed" },
    { "silence in a stream", offsetof(struct server_limits, keep_alive_s), "s", "a comment is sent" },
    { "drain", offsetof(struct server_limits, drain_s), "s", "answers end with an error" },
};

void limits_log(const struct server_limits *limits)
{
    log_line(LOG_INFO, "server",
             "%u connections, up to %u waiting, bodies of %u MiB at most; --log debug lists all limits",
             limits->n_connections, limits->n_queued, limits->body_bytes >> 20);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        u32 value = *(const u32 *)(const void *)((const char *)limits + rows[i].at);
        log_line(LOG_DEBUG, "limit", "%-20s %10u %-22s beyond: %s", rows[i].what, value, rows[i].unit,
                 rows[i].beyond);
    }
}
