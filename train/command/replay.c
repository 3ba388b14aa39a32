#include "train/command/replay.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "train/report/file_writer.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    int64_t event; /* its id in the file */
    int64_t step;
    struct train_command command;
};

struct replay {
    const struct train_control *also; /* or NULL */
    struct train_control control;
    struct entry *entries;
    int count, given;
    size_t capacity;
};

/* --- reading -------------------------------------------------------------- */

/* Where a reader is, for what it says of a bad line. */
struct place {
    struct replay *replay;
    const char *path;
    int line;
    enum zd_status status; /* of what was read so far */
};

static enum zd_status fail_line(const struct place *place, const char *what)
{
    ZD_FAIL(ZD_ERR_DATA, "E1013", "%s is not a list of events: %s", place->path,
            what);
    zd_fail_where("%s:%d", place->path, place->line);
    return ZD_ERR_DATA;
}

static enum zd_status read_set(
        const struct place *place, const json_t *object,
        struct train_command *command)
{
    bool any = false;
    for (int id = 0; id < SETTINGS; id++) {
        const json_t *value = json_object_get(object, train_settings[id].name);
        if (!value)
            continue;
        if (!json_is_number(value))
            return fail_line(place, "a setting is no number");
        command->given[id] = any = true;
        command->value[id] = json_number_value(value);
    }
    return any ? ZD_OK : fail_line(place, "a set without a setting");
}

static enum zd_status read_sample(
        const struct place *place, const json_t *object,
        struct train_command *command)
{
    const char *prompt = json_string_at(object, "prompt");
    if (!prompt || strlen(prompt) >= TRAIN_PROMPT_MAX)
        return fail_line(place, "a sample without a prompt that can be");
    strcpy(command->prompt, prompt);
    command->max_new_tokens = (int)json_integer_at(object, "max_new_tokens");
    return ZD_OK;
}

/* A command: an event, or one of a list that `resumed` has. */
static enum zd_status read_command(
        const struct place *place, const json_t *object, int64_t event)
{
    struct replay *replay = place->replay;
    struct entry entry = {.event = event};
    const char *name = json_string_at(object, "command");
    int kind = name ? train_command_find(name) : -1;
    entry.step = json_integer_at(object, "step");
    if (kind < 0)
        return fail_line(place, "a command that is none");
    if (json_object_get(object, "error"))
        return ZD_OK; /* it was not done */
    entry.command.kind = (enum train_command_kind)kind;
    entry.command.uid = entry.command.pid = -1;
    switch (entry.command.kind) {
    case COMMAND_SET:
        ZD_TRY(read_set(place, object, &entry.command));
        break;
    case COMMAND_SAMPLE:
        ZD_TRY(read_sample(place, object, &entry.command));
        break;
    case COMMAND_CHECKPOINT:
    case COMMAND_EVAL:
        break;
    default:
        return ZD_OK;
    }
    replay->entries =
            zd_grow(replay->entries, &replay->capacity,
                    (size_t)replay->count + 1, sizeof *replay->entries);
    replay->entries[replay->count++] = entry;
    return ZD_OK;
}

/* What came before it and was undone goes. */
static enum zd_status read_resumed(
        const struct place *place, const json_t *object, int64_t event)
{
    struct replay *replay = place->replay;
    size_t i;
    json_t *command;
    int kept = 0;
    int64_t after = json_integer_at(object, "after");
    int64_t step = json_integer_at(object, "step");
    const json_t *list = json_object_get(object, "commands");
    if (!json_is_integer(json_object_get(object, "after")))
        return fail_line(place, "`resumed` does not say after which event");
    for (int n = 0; n < replay->count && !list; n++) {
        const struct entry *entry = &replay->entries[n];
        if (entry->event <= after ||
            (entry->command.kind != COMMAND_SET && entry->step <= step))
            replay->entries[kept++] = *entry;
    }
    replay->count = kept;
    json_array_foreach(list, i, command)
            ZD_TRY(read_command(place, command, event));
    return ZD_OK;
}

static enum zd_status read_event(
        const struct place *place, const json_t *object)
{
    const char *kind = json_string_at(object, "event");
    int64_t id = json_integer_at(object, "id");
    if (!kind || !json_is_integer(json_object_get(object, "id")) ||
        !json_is_integer(json_object_get(object, "step")))
        return fail_line(
                place, "the line is no object with an id, an event and a step");
    if (strcmp(kind, "command") == 0)
        return read_command(place, object, id);
    return strcmp(kind, "resumed") == 0 ? read_resumed(place, object, id)
                                        : ZD_OK;
}

static bool read_row(void *ctx, const json_t *row)
{
    struct place *place = ctx;
    place->line++;
    place->status = read_event(place, row);
    return place->status == ZD_OK;
}

/* A last line without its end is torn, and none. */
static enum zd_status read_file(struct replay *replay, const char *path)
{
    size_t bytes;
    struct place place = {.replay = replay, .path = path};
    if (!fs_exists(path))
        return ZD_FAIL(
                ZD_ERR_NO_INPUT, "E1012", "%s does not exist (--replay)", path);
    ZD_TRY(file_rows(path, read_row, &place, &bytes));
    return place.status;
}

/* --- giving --------------------------------------------------------------- */

/* Ids of the file's commands are below 0: those of `also` are not. */
static bool next(void *ctx, int64_t step, struct train_command *out)
{
    struct replay *replay = ctx;
    while (replay->given < replay->count) {
        const struct entry *entry = &replay->entries[replay->given];
        if (entry->step > step)
            break;
        replay->given++;
        if (entry->step < step)
            continue; /* this run began after it */
        *out = entry->command;
        out->id = -1;
        return true;
    }
    return replay->also && replay->also->next(replay->also->ctx, step, out);
}

static void done(
        void *ctx, const struct train_command *command, int64_t step,
        const struct zd_error *error, const json_t *result)
{
    struct replay *replay = ctx;
    if (command->id >= 0 && replay->also)
        replay->also->done(replay->also->ctx, command, step, error, result);
}

enum zd_status replay_open(
        const char *path, const struct train_control *also, struct replay **out)
{
    struct replay *replay = zd_array(1, sizeof *replay);
    replay->also = also;
    replay->control =
            (struct train_control){.ctx = replay, .next = next, .done = done};
    enum zd_status status = read_file(replay, path);
    if (status != ZD_OK) {
        replay_close(replay);
        return status;
    }
    *out = replay;
    return ZD_OK;
}

void replay_close(struct replay *replay)
{
    if (!replay)
        return;
    free(replay->entries);
    free(replay);
}

const struct train_control *replay_control(const struct replay *replay)
{
    return &replay->control;
}

int replay_count(const struct replay *replay)
{
    return replay->count;
}
