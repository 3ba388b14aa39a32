/* device_table.h - the functions of a kind of device, to which
 * base/device/device.h, base/device/device_memory.h and base/device/stream.h
 * dispatch. Only for the files of base that implement one; other code does not
 * ask which device it is on. */
#pragma once

#include "base/device/device_memory.h"

/* Every stream and every event begins with the table of its kind. */
struct stream {
    const struct stream_table *table;
};
struct event {
    const struct stream_table *table;
};

/* As in stream.h. Events are not NULL. A NULL stream is the compute stream of
 * the thread's device, except in `counters` of the CPU. */
struct stream_table {
    enum zd_status (*create)(
            const char *name, enum stream_mode mode,
            struct stream **stream_out);
    void (*destroy)(struct stream *stream);
    void (*use)(struct stream *stream); /* NULL: nothing to do */
    enum zd_status (*copy)(
            struct stream *stream, void *to, const void *from, size_t bytes);
    enum zd_status (*call)(
            struct stream *stream, stream_fn *fn, void *ctx, int64_t arg);
    enum zd_status (*record)(struct stream *stream, struct event *event);
    enum zd_status (*wait)(struct stream *stream, struct event *event);
    enum zd_status (*wait_counted)(struct stream *stream, struct event *event);
    enum zd_status (*wait_record)(
            struct stream *stream, struct event *event, uint64_t record);
    uint64_t (*event_records)(struct event *event);
    enum zd_status (*finish)(struct stream *stream);
    void (*set_spans)(struct stream *stream, struct spans *spans, int lane);
    struct stream_counters (*counters)(struct stream *stream);
    enum zd_status (*event_create)(struct event **event_out);
    void (*event_destroy)(struct event *event);
    enum zd_status (*event_wait)(struct event *event);
    bool (*event_is_done)(struct event *event);
};

extern const struct stream_table stream_table_cpu;

/* As in device.h and device_memory.h; pointers are not NULL, counts not 0. */
struct device_table {
    const struct stream_table *streams;
    void (*close)(struct device *device);
    void (*use)(struct device *device);
    enum zd_status (*take)(size_t bytes, void **device_out);
    void (*give)(void *device, size_t bytes);
    enum zd_status (*take_pinned)(size_t bytes, void **host_out);
    void (*give_pinned)(void *host, size_t bytes);
    enum zd_status (*lend_staging)(void *pinned); /* NULL: it needs none */
    enum zd_status (*clear)(void *device, size_t bytes);
    enum zd_status (*move)(
            void *to, const void *from, const struct device_rows *rows);
    enum zd_status (*read)(void *host, const void *device, size_t bytes);
    enum zd_status (*write)(void *device, const void *host, size_t bytes);
    enum zd_status (*finish)(void);
    enum zd_status (*check)(void);
    enum zd_status (*used_bytes)(uint64_t *bytes_out);
};

extern const struct device_table device_table_cpu;

/* A GPU; the CPU has none. */
struct device {
    const struct device_table *table;
    struct device_facts facts;
};

/* The table of the thread's device. */
const struct device_table *device_table(void);

/* How many GPUs there are; 0: no GPU or no driver; -1: unknown, because the
 * driver does not start. *why_out says why there is none. */
int device_gpus(const char **why_out);
/* Help text for a machine without one; static. */
const char *device_gpus_help(void);
enum zd_status device_open_gpu(
        int local_rank, int local_size, struct device **device_out);
