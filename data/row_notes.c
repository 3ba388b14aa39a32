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

static void keep(struct noted *noted, const char *row)
{
    if (noted->kept == ROWS_KEPT)
        return;
    char *kept = noted->first[noted->kept++];
    snprintf(kept, ROW_BYTES, "%s", row);
    for (char *c = kept; *c; c++) /* a line each */
        *c = *c == '\n' ? ' ' : *c;
}

void row_notes_add(
        struct row_notes *notes, enum row_note which, int64_t count,
        const char *row)
{
    struct noted *noted = &notes->of[which];
    noted->rows++;
    noted->count += count;
    keep(noted, row);
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
    ZD_PRINT(row, "%.160s: %.230s", error->where, what);
    row_notes_add(notes, ROW_BAD, 1, row);
    zd_error_clear();
}

void row_notes_append(struct row_notes *notes, struct row_notes *from)
{
    for (int w = 0; w < ROW_NOTES; w++) {
        struct noted *to = &notes->of[w], *later = &from->of[w];
        for (int i = 0; i < later->kept; i++)
            keep(to, later->first[i]);
        to->rows += later->rows;
        to->count += later->count;
        later->rows = later->count = later->kept = 0;
    }
}

/* --- kept beside the cache ------------------------------------------------ */

json_t *row_notes_json(const struct row_notes *notes)
{
    json_t *json = json_object();
    for (int w = 0; w < ROW_NOTES; w++) {
        const struct noted *noted = &notes->of[w];
        json_t *first = json_array();
        for (int i = 0; i < noted->kept; i++) {
            const char *row = noted->first[i];
            json_array_append_new(first, utf8_json(row, strlen(row), true));
        }
        json_auto_t *note = json_pack(
                "{s:I, s:I, s:o}", "rows", noted->rows, "count", noted->count,
                "first", first);
        if (noted->rows > 0)
            json_object_set(json, names[w], note);
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
    json_auto_t *json = row_notes_json(notes);
    path_of(name, path);
    if (json_object_size(json))
        return json_write_file(name, json);
    unlink(name);
    return ZD_OK;
}

void row_notes_load(struct row_notes *notes, const char *path)
{
    enum { NOTES_BYTES = 1 << 20 };
    char name[PATH_MAX];
    json_auto_t *json = NULL;
    path_of(name, path);
    *notes = (struct row_notes){0};
    if (!fs_exists(name))
        return;
    if (json_parse_file(name, NOTES_BYTES, &json) != ZD_OK)
        zd_error_clear();
    for (int w = 0; w < ROW_NOTES; w++) {
        const json_t *note = json_object_get(json, names[w]);
        struct noted *noted = &notes->of[w];
        noted->rows = json_integer_at(note, "rows");
        noted->count = json_integer_at(note, "count");
        JSON_EACH(row, json_object_get(note, "first"))
            if (json_is_string(row))
                keep(noted, json_string_value(row));
    }
}

/* --- told ----------------------------------------------------------------- */

void row_notes_tell(
        const struct row_notes *notes, const char *source,
        const char *chat_template)
{
    const struct noted *bad = &notes->of[ROW_BAD];
    const struct noted *parts = &notes->of[ROW_PARTS];
    const struct noted *untrained = &notes->of[ROW_UNTRAINED];
    struct text_buffer text = TEXT_BUFFER(3 * ROW_BYTES);
    if (bad->rows > 0)
        zd_log_warning(
                "%s: %lld bad row%s left out (data.on_bad_row = \"skip\")%s",
                source, bad->rows, bad->rows == 1 ? " is" : "s are",
                bad->rows > bad->kept ? "; the first ones:" : ":");
    for (int i = 0; i < bad->kept; i++)
        zd_log_warning("  %s", bad->first[i]);
    for (const struct noted *it = &notes->of[ROW_TOOLS]; it < parts; it++)
        if (it->rows > 0)
            text_buffer_add(
                    &text, "%s%s (%lld row%s, first %s)", text.used ? ", " : "",
                    names[it - notes->of], it->rows, it->rows == 1 ? "" : "s",
                    it->first[0]);
    if (text.used && chat_template)
        zd_log_warning(
                "%s: the chat template %s ignores %s; data.chat_template = "
                "\"PATH\" uses another template, and without these keys the "
                "rows are the same",
                source, chat_template, text.out);
    if (parts->rows > 0 && chat_template)
        zd_log_warning(
                "%s: the chat template %s does not read a content that is a "
                "list of parts (%lld row%s, first %s): it leaves the text out "
                "or prints the list; `zerod data inspect` shows it",
                source, chat_template, parts->rows, parts->rows == 1 ? "" : "s",
                parts->first[0]);
    if (untrained->rows > 0)
        zd_log_warning(
                "%s: nothing of %lld row%s is trained (first: %s); "
                "`zerod data inspect` shows what the loss counts, and "
                "data.train_on decides it",
                source, untrained->rows, untrained->rows == 1 ? "" : "s",
                untrained->first[0]);
}
