#include "data/row_notes.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "base/text_buffer.h"
#include "data/tokenizer/utf8.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const names[ROW_NOTES] = {
        [ROW_BAD] = "bad",
        [ROW_TOOLS] = "tools",
        [ROW_CALLS] = "tool_calls",
        [ROW_THOUGHTS] = "reasoning_content",
        [ROW_PARTS] = "content_parts",
        [ROW_UNTRAINED] = "untrained",
        [ROW_SPECIALS] = "special_tokens"};

static void keep(struct row_notes *notes, int which, const char *row)
{
    if (notes->of[which].kept == ROWS_KEPT)
        return;
    char *kept = notes->of[which].first[notes->of[which].kept++];
    snprintf(kept, ROW_BYTES, "%s", row);
    for (char *c = kept; *c; c++) /* a line each */
        *c = *c == '\n' ? ' ' : *c;
}

void row_notes_add(
        struct row_notes *notes, enum row_note which, int64_t count,
        const char *row)
{
    notes->of[which].rows++;
    notes->of[which].count += count;
    keep(notes, which, row);
}

void row_notes_take_error(struct row_notes *notes)
{
    const struct zd_error *error = zd_error_get();
    const char *what = error->what;
    char row[ROW_BYTES];
    size_t same = 0; /* bytes of a path that both begin with */
    while (what[same] && what[same] == error->where[same])
        same++;
    if (what[same] == ' ' && error->where[same] == ':')
        what += same + 1;
    snprintf(row, sizeof row, "%.160s: %.230s", error->where, what);
    row_notes_add(notes, ROW_BAD, 1, row);
    zd_error_clear();
}

void row_notes_append(struct row_notes *notes, struct row_notes *from)
{
    for (int w = 0; w < ROW_NOTES; w++) {
        for (int i = 0; i < from->of[w].kept; i++)
            keep(notes, w, from->of[w].first[i]);
        notes->of[w].rows += from->of[w].rows;
        notes->of[w].count += from->of[w].count;
        from->of[w].rows = from->of[w].count = from->of[w].kept = 0;
    }
}

/* --- kept beside the cache ------------------------------------------------ */

json_t *row_notes_json(const struct row_notes *notes)
{
    json_t *json = json_object();
    for (int w = 0; w < ROW_NOTES; w++) {
        json_t *first = json_array();
        for (int i = 0; i < notes->of[w].kept; i++)
            json_array_append_new(
                    first, utf8_json(
                                   notes->of[w].first[i],
                                   strlen(notes->of[w].first[i]), true));
        json_t *note = json_pack(
                "{s:I, s:I, s:o}", "rows", (json_int_t)notes->of[w].rows,
                "count", (json_int_t)notes->of[w].count, "first", first);
        if (notes->of[w].rows > 0)
            json_object_set(json, names[w], note);
        json_decref(note);
    }
    return json;
}

static void path_of(char out[PATH_MAX], const char *cache)
{
    const char *dot = strrchr(cache, '.');
    size_t stem = dot ? (size_t)(dot - cache) : strlen(cache);
    snprintf(out, PATH_MAX, "%.*s.rows", (int)stem, cache);
}

enum zd_status row_notes_save(const struct row_notes *notes, const char *path)
{
    char name[PATH_MAX];
    json_t *json = row_notes_json(notes);
    path_of(name, path);
    enum zd_status status = ZD_OK;
    if (json_object_size(json))
        status = json_write_file(name, json);
    else
        unlink(name);
    json_decref(json);
    return status;
}

void row_notes_load(struct row_notes *notes, const char *path)
{
    enum { NOTES_BYTES = 1 << 20 };
    char name[PATH_MAX];
    json_t *json = NULL, *row;
    size_t i;
    path_of(name, path);
    *notes = (struct row_notes){0};
    if (!fs_exists(name))
        return;
    if (json_parse_file(name, NOTES_BYTES, &json) != ZD_OK)
        zd_error_clear();
    for (int w = 0; w < ROW_NOTES; w++) {
        const json_t *note = json_object_get(json, names[w]);
        notes->of[w].rows = json_integer_at(note, "rows");
        notes->of[w].count = json_integer_at(note, "count");
        json_array_foreach(
                json_object_get(note, "first"), i, row) if (json_is_string(row))
                keep(notes, w, json_string_value(row));
    }
    json_decref(json);
}

/* --- told ----------------------------------------------------------------- */

void row_notes_tell(
        const struct row_notes *notes, const char *source,
        const char *chat_template)
{
    int64_t bad = notes->of[ROW_BAD].rows;
    char ignored[3 * ROW_BYTES];
    struct text_buffer text = {.out = ignored, .bytes = sizeof ignored};
    int64_t parts = notes->of[ROW_PARTS].rows;
    int64_t untrained = notes->of[ROW_UNTRAINED].rows;
    if (bad > 0)
        zd_log_warning(
                "%s: %lld bad row%s left out (data.on_bad_row = \"skip\")%s",
                source, (long long)bad, bad == 1 ? " is" : "s are",
                bad > notes->of[ROW_BAD].kept ? "; the first ones:" : ":");
    for (int i = 0; i < notes->of[ROW_BAD].kept; i++)
        zd_log_warning("  %s", notes->of[ROW_BAD].first[i]);
    for (int w = ROW_TOOLS; w <= ROW_THOUGHTS; w++)
        if (notes->of[w].rows > 0)
            text_buffer_add(
                    &text, "%s%s (%lld row%s, first %s)", text.used ? ", " : "",
                    names[w], (long long)notes->of[w].rows,
                    notes->of[w].rows == 1 ? "" : "s", notes->of[w].first[0]);
    if (text.used && chat_template)
        zd_log_warning(
                "%s: the chat template %s ignores %s; data.chat_template = "
                "\"PATH\" uses another template, and without these keys the "
                "rows are the same",
                source, chat_template, ignored);
    if (parts > 0 && chat_template)
        zd_log_warning(
                "%s: the chat template %s does not read a content that is a "
                "list of parts (%lld row%s, first %s): it leaves the text out "
                "or prints the list; `zerod data inspect` shows it",
                source, chat_template, (long long)parts, parts == 1 ? "" : "s",
                notes->of[ROW_PARTS].first[0]);
    if (untrained > 0)
        zd_log_warning(
                "%s: nothing of %lld row%s is trained (first: %s); "
                "`zerod data inspect` shows what the loss counts, and "
                "data.train_on decides it",
                source, (long long)untrained, untrained == 1 ? "" : "s",
                notes->of[ROW_UNTRAINED].first[0]);
}
