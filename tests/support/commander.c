#include "tests/support/commander.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool next(void *ctx, int64_t step, struct train_command *out)
{
    struct commander *commander = ctx;
    if (commander->given == commander->count ||
        commander->entries[commander->given].step > step)
        return false;
    *out = commander->entries[commander->given].command;
    out->id = commander->given++;
    return true;
}

static void done(
        void *ctx, const struct train_command *command, int64_t step,
        const struct zd_error *error, const json_t *result)
{
    struct commander *commander = ctx;
    struct commander_entry *entry = &commander->entries[command->id];
    entry->done_step = step;
    entry->done_count++;
    if (error)
        entry->error = *error;
    entry->result = json_deep_copy(result);
}

static void on_event(void *ctx, const struct train_event *event)
{
    struct commander *commander = ctx;
    if (strcmp(event->kind, "state") != 0 ||
        commander->state_count == COMMANDER_STATES)
        return;
    commander->states[commander->state_count] =
            (enum train_run_state)train_run_state_find(
                    json_string_at(event->members, "state"));
    commander->state_steps[commander->state_count++] = event->step;
}

static void on_end(void *ctx, const struct train_end *end)
{
    struct commander *commander = ctx;
    commander->end = *end;
}

void commander_init(struct commander *commander)
{
    memset(commander, 0, sizeof *commander);
    commander->control = (struct train_control){
            .ctx = commander, .next = next, .done = done};
    commander->observer = (struct train_observer){
            .ctx = commander,
            .event = on_event,
            .end = on_end,
            .control = &commander->control};
}

void commander_fini(struct commander *commander)
{
    for (int i = 0; i < commander->count; i++)
        json_decref(commander->entries[i].result);
}

struct train_command *commander_add(
        struct commander *commander, int64_t step, enum train_command_kind kind)
{
    struct commander_entry *entry = &commander->entries[commander->count++];
    *entry = (struct commander_entry){.step = step, .done_step = -1};
    entry->command.kind = kind;
    entry->command.uid = entry->command.pid = -1;
    return &entry->command;
}

/* SETTINGS: none has this name. */
static int setting_of(const char *name)
{
    int id = 0;
    while (id < SETTINGS && strcmp(train_settings[id].name, name) != 0)
        id++;
    return id;
}

void commander_ask(struct commander *commander, const char *commands)
{
    char copy[400], *rest = copy, *one;
    commander_init(commander);
    ZD_PRINT(copy, "%s", commands);
    while ((one = strsep(&rest, ","))) {
        int step = 0, kind = 0;
        char name[40] = "", value[40] = "";
        sscanf(one, "%d %39s %39s", &step, name, value);
        int setting = setting_of(name);
        while (setting == SETTINGS && kind < COMMAND_PROFILE &&
               strcmp(train_command_name((enum train_command_kind)kind),
                      name) != 0)
            kind++;
        if (setting < SETTINGS)
            kind = COMMAND_SET;
        struct train_command *command =
                commander_add(commander, step, (enum train_command_kind)kind);
        if (setting < SETTINGS) {
            command->given[setting] = true;
            command->value[setting] = strtod(value, NULL);
        }
        command->save = strcmp(value, "save") == 0;
        command->steps = atoi(value);
        strcpy(command->prompt, kind == COMMAND_SAMPLE ? value : "");
    }
}

bool commander_all_done(const struct commander *commander)
{
    bool all = true;
    ZD_EACH(entry, commander->entries, commander->count) {
        if (entry->done_count == 1 && entry->error.status == ZD_OK)
            continue;
        printf("# %s at step %lld: told %d times, %s\n",
               train_command_name(entry->command.kind), (long long)entry->step,
               entry->done_count, entry->error.what);
        all = false;
    }
    return all;
}

bool commander_saw(
        const struct commander *commander, enum train_run_state state)
{
    for (int i = 0; i < commander->state_count; i++)
        if (commander->states[i] == state)
            return true;
    return false;
}
