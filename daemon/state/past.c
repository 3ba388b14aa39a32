#include "daemon/state/past.h"

#include "base/file/json.h"
#include "base/must.h"
#include "train/report/file_writer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_kind(const struct kept_event *event, const char *kind)
{
    return strcmp(event->kind, kind) == 0;
}

/* A `set` changes what follows the step at which it was done, so it is undone
 * with the checkpoint of that step too. */
static bool is_set(const struct kept_event *event)
{
    json_auto_t *object = json_loads(event->text, 0, NULL);
    return strcmp(json_text_of(object, "command", ""), "set") == 0;
}

/* Was it undone by the process that went on after `step`? */
static bool is_undone(
        const struct kept_event *event, int64_t after, int64_t step)
{
    bool is_of_run = is_kind(event, "sample") || is_kind(event, "eval") ||
                     is_kind(event, "checkpoint") || is_kind(event, "command");
    if (!is_of_run || event->id <= after)
        return false;
    return event->step > step || (is_kind(event, "command") && is_set(event));
}

/* Drop the events that `resumed` undid. */
static void undo(struct past *past, const struct kept_event *resumed)
{
    int count = 0;
    json_auto_t *object = json_loads(resumed->text, 0, NULL);
    bool is_fresh = json_is_null(json_object_get(object, "from"));
    int64_t after = json_integer_at(object, "after");
    for (int i = 0; i < past->count; i++) {
        struct kept_event *event = &past->events[i];
        if (is_fresh || is_undone(event, after, resumed->step))
            free(event->text);
        else
            past->events[count++] = *event;
    }
    past->count = count;
}

/* Drop the oldest. */
static void keep_last(struct past *past)
{
    int over = past->count - EVENTS_KEPT;
    if (over <= 0)
        return;
    for (int i = 0; i < over; i++)
        free(past->events[i].text);
    memmove(past->events, past->events + over,
            EVENTS_KEPT * sizeof *past->events);
    past->count = EVENTS_KEPT;
}

/* The oldest are dropped by thousands, which costs little. */
const struct kept_event *past_append(
        struct past *past, const struct kept_event *event)
{
    if (past->count == 2 * EVENTS_KEPT)
        keep_last(past);
    ZD_GROW(past->events, past->room, past->count + 1);
    past->events[past->count] = *event;
    past->events[past->count].text = zd_must(strdup(event->text));
    return &past->events[past->count++];
}

void past_add(struct past *past, const struct kept_event *event)
{
    if (past->count && event->id <= past->events[past->count - 1].id)
        return;
    if (is_kind(event, "resumed"))
        undo(past, event);
    past_append(past, event);
}

int past_after(const struct past *past, int64_t id)
{
    int i = past->count;
    while (i > 0 && past->events[i - 1].id > id)
        i--;
    return i;
}

static bool add_line(void *ctx, const char *line, const json_t *object)
{
    struct kept_event event = {
            .id = json_integer_at(object, "id"),
            .step = json_integer_at(object, "step"),
            .text = (char *)line};
    ZD_PRINT(event.kind, "%s", json_text_of(object, "event", ""));
    if (event.id > 0)
        past_add(ctx, &event);
    return true;
}

struct past *past_read(const char *path)
{
    size_t kept;
    struct past *past = zd_array(1, sizeof *past);
    if (file_rows(path, add_line, past, &kept) != ZD_OK)
        zd_error_clear();
    keep_last(past);
    return past;
}

void past_fini(struct past *past)
{
    for (int i = 0; i < past->count; i++)
        free(past->events[i].text);
    free(past->events);
}

void past_free(struct past *past)
{
    if (past)
        past_fini(past);
    free(past);
}
