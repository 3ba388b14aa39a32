#include "daemon/reference/programs.h"

#include "base/text_stream.h"
#include "daemon/reference/key_text.h"
#include "daemon/state/history.h"
#include "train/job/control.h"

#include <stdlib.h>

static const struct completion_key *settings(void)
{
    static struct completion_key keys[SETTINGS];
    for (int i = 0; i < SETTINGS; i++)
        keys[i] = (struct completion_key){train_settings[i].name, "", false};
    return keys;
}

static void put_series(FILE *stream)
{
    for (int i = 0; i < SERIES_COUNT; i++)
        fprintf(stream, "%s%s", i ? " " : "",
                run_series_name((enum run_series)i));
}

/* Sections and keys. */
static void put_keys(FILE *stream)
{
    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *key = &schema_table[i];
        if (!key->section[0] || (key->flags & SCHEMA_UNAVAILABLE))
            continue;
        if (key_begins_section(key))
            fprintf(stream, " %s", key->section);
        fprintf(stream, " %s.%s", key->section, key->name);
    }
}

static char *written(void (*put)(FILE *))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = text_stream_open(&text, &bytes);
    put(stream);
    fclose(stream);
    return text;
}

const struct completion_keys *zerodctl_keys(void)
{
    static struct completion_keys keys[4];
    keys[0] = (struct completion_keys){
            .placeholder = "KEY=VALUE", .keys = settings(), .count = SETTINGS};
    keys[1] = (struct completion_keys){
            .placeholder = "KEY", .words = written(put_keys)};
    keys[2] = (struct completion_keys){
            .placeholder = "NAME", .words = written(put_series)};
    return keys;
}
