#include "train/report/events.h"

#include "base/clock.h"
#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/log.h"
#include "base/must.h"
#include "base/threads.h"
#include "train/report/file_writer.h"

#include <stdlib.h>
#include <string.h>

struct events {
    const struct train_observer *observer;
    pthread_mutex_t mutex; /* guards what follows, and the order of events */
    struct file_writer *file;
    size_t kept; /* bytes of the file to keep */
    int64_t last_id, last_step;
};

static bool take_id(void *ctx, const char *text, const json_t *line)
{
    int64_t *last = ctx, id = json_integer_at(line, "id");
    *last = id > *last ? id : *last;
    return true;
}

static void on_log(void *ctx, enum zd_log_level level, const char *message)
{
    if (level >= ZD_LOG_WARNING)
        events_tell(ctx, "warning", -1, json_pack("{s:s}", "message", message));
}

enum zd_status events_open(
        const char *path, const struct train_observer *observer,
        struct events **out)
{
    struct events *events = zd_array(1, sizeof *events);
    events->observer = observer;
    pthread_mutex_init(&events->mutex, NULL);
    events->file = file_writer_create(path, FILE_ROWS, "events");
    enum zd_status status =
            file_rows(path, take_id, &events->last_id, &events->kept);
    if (status != ZD_OK) {
        events_close(events);
        return status;
    }
    zd_log_set_hook(on_log, events);
    *out = events;
    return ZD_OK;
}

enum zd_status events_begin(struct events *events)
{
    return events ? file_writer_begin(events->file, events->kept) : ZD_OK;
}

void events_close(struct events *events)
{
    if (!events)
        return;
    zd_log_set_hook(NULL, NULL);
    file_writer_close(events->file);
    pthread_mutex_destroy(&events->mutex);
    free(events);
}

/* Call with the mutex held, so that events reach file and observer in order. */
static void tell(
        struct events *events, struct train_event *event, const json_t *members)
{
    event->id = ++events->last_id;
    event->time = clock_wall_seconds();
    if (event->step < 0)
        event->step = events->last_step;
    events->last_step = event->step;
    json_auto_t *line = json_pack(
            "{s:I, s:f, s:s, s:I}", "id", (json_int_t)event->id, "time",
            event->time, "event", event->kind, "step", (json_int_t)event->step);
    if (members)
        json_object_update_missing(line, (json_t *)(uintptr_t)members);
    /* enough digits to read numbers back exactly, as in metrics.jsonl */
    ZD_FREED char *text =
            json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
    event->text = text;
    event->members = members;
    struct zd_error before = *zd_error_get();
    if (strcmp(event->kind, "step") != 0)
        file_writer_add(events->file, text, strlen(text));
    /* losing the line is not the caller's failure; restore its error record */
    zd_error_set(&before);
    if (events->observer->event)
        events->observer->event(events->observer->ctx, event);
}

void events_tell(
        struct events *events, const char *kind, int64_t step, json_t *members)
{
    struct train_event event = {.kind = kind, .step = step};
    if (events) {
        ZD_LOCKED(&events->mutex);
        tell(events, &event, members);
    }
    json_decref(members);
}

void events_append(
        const char *path, const char *kind, int64_t step, json_t *members)
{
    struct train_observer none = {0};
    struct events events = {.observer = &none};
    struct train_event event = {.kind = kind, .step = step};
    bool is_there;
    if (fs_look(path, &is_there) == ZD_OK && is_there &&
        file_rows(path, take_id, &events.last_id, &events.kept) == ZD_OK &&
        file_writer_open(
                path, FILE_ROWS, events.kept, "events", &events.file) ==
                ZD_OK) {
        tell(&events, &event, members);
        file_writer_sync(events.file);
        file_writer_close(events.file);
    }
    json_decref(members);
}

int64_t events_last_id(struct events *events)
{
    if (!events)
        return 0;
    ZD_LOCKED(&events->mutex);
    return events->last_id;
}

/* May be slow; events_tell does not wait for the disk. */
enum zd_status events_sync(struct events *events)
{
    return events ? file_writer_sync(events->file) : ZD_OK;
}
