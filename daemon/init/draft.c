/* draft.c - a job file is put together, and read as one. */
#include "daemon/init/draft.h"

#include "base/must.h"
#include "base/text_stream.h"
#include "daemon/job/schema.h"

#include <stdlib.h>
#include <string.h>

/* --- where their files have a key ----------------------------------------- */

/* The next `key` with a colon, in quotes or at the beginning of a line of YAML.
 */
static const char *find_key(
        const char *text, const char *at, const char *key, size_t bytes)
{
    for (; (at = strstr(at, key)); at++) {
        const char *end = at + bytes;
        char before = at == text ? '\n' : at[-1];
        bool is_quoted = before == '"' && *end == '"';
        if (!is_quoted && !strchr("\n -{,", before))
            continue;
        end += is_quoted;
        if (end[strspn(end, " \t\r\n")] == ':')
            return at;
    }
    return NULL;
}

/* Each part is looked for after the one before it; of a list's n-th item the
 * n-th key of that name. */
static const char *find_name(const struct toml_source *source, const char *name)
{
    const char *at = source->text;
    char part[100];
    for (int skip = 0; at && *name;) {
        size_t bytes = strcspn(name, ".["), length;
        ZD_PRINT(part, "%.*s", (int)bytes, name);
        length = strlen(part);
        at = find_key(source->text, at, part, length);
        for (; skip && at; skip--)
            at = find_key(source->text, at + 1, part, length);
        name += bytes;
        if (*name == '[')
            skip = (int)strtol(name + 1, (char **)&name, 10);
        name += strspn(name, "].");
    }
    return at;
}

/* "a.b" or "list[1].b"; source NULL: nowhere. */
static struct toml_place place_of(const struct draft *draft, const char *theirs)
{
    struct toml_place place = {0};
    const char *found = NULL, *dot = strrchr(theirs, '.');
    for (int i = 0; i < draft->source_count && !found && *theirs; i++) {
        place.source = &draft->sources[i];
        found = find_name(place.source, theirs);
    }
    if (!found)
        return (struct toml_place){0};
    place.line = place.column = 1;
    for (const char *at = place.source->text + 1; at < found; at++) {
        place.column = *at == '\n' ? 0 : place.column + 1;
        place.line += *at == '\n';
    }
    place.column += found > place.source->text;
    place.width = (int)strlen(dot ? dot + 1 : theirs);
    return place;
}

/* --- what is in it -------------------------------------------------------- */

void draft_init(struct draft *draft)
{
    *draft = (struct draft){
            .values = json_object(),
            .train = json_array(),
            .eval = json_array(),
            .head = json_array(),
            .notes = json_object(),
            .differs = json_object(),
            .told = json_object(),
            .defaults = json_array(),
            .automatic = json_object()};
}

void draft_fini(struct draft *draft)
{
    json_decref(draft->values);
    json_decref(draft->train);
    json_decref(draft->eval);
    json_decref(draft->head);
    json_decref(draft->notes);
    json_decref(draft->differs);
    json_decref(draft->told);
    json_decref(draft->defaults);
    json_decref(draft->automatic);
    problems_fini(&draft->problems);
    for (int i = 0; i < draft->source_count; i++) {
        free(draft->sources[i].name);
        free(draft->sources[i].text);
    }
}

bool draft_has(const struct draft *draft, const char *key)
{
    return json_object_get(draft->values, key) != NULL;
}

void draft_set_entry(
        json_t *entry, const char *key, json_t *value, const char *why)
{
    json_object_set_new(
            entry, key,
            json_pack("{s:o, s:s}", "value", value, "why", why ? why : ""));
}

void draft_set_source(
        json_t *entry, const char *path, const char *why, const char *name,
        const char *split)
{
    draft_set_entry(entry, "path", json_string(path), why);
    if (name)
        draft_set_entry(entry, "name", json_string(name), "--data-name");
    if (split)
        draft_set_entry(entry, "split", json_string(split), "--data-split");
}

void draft_remove(struct draft *draft, const char *key)
{
    json_object_del(draft->values, key);
}

void draft_replace(
        struct draft *draft, const char *key, json_t *value, const char *why)
{
    draft_set_entry(draft->values, key, value, why);
}

void draft_set(
        struct draft *draft, const char *key, json_t *value, const char *why)
{
    if (draft_has(draft, key))
        json_decref(value);
    else
        draft_replace(draft, key, value, why);
}

static const json_t *part(
        const struct draft *draft, const char *key, const char *name)
{
    return json_object_get(json_object_get(draft->values, key), name);
}

const char *draft_text(const struct draft *draft, const char *key)
{
    return json_string_value(part(draft, key, "value"));
}

double draft_number(const struct draft *draft, const char *key)
{
    return json_number_value(part(draft, key, "value"));
}

json_t *draft_source(struct draft *draft)
{
    if (!json_array_size(draft->train))
        json_array_append_new(draft->train, json_object());
    return json_array_get(draft->train, 0);
}

void draft_tell(struct draft *draft, const char *theirs)
{
    json_object_set_new(draft->told, theirs, json_true());
}

void draft_say(struct draft *draft, const char *format, ...)
{
    ZD_FREED TEXT_OF_ARGS(text, format);
    json_array_append_new(draft->head, json_string_or_null(text));
}

void draft_note(struct draft *draft, const char *theirs, const char *why)
{
    draft_tell(draft, theirs);
    json_object_set_new(draft->notes, theirs, json_string(why));
}

void draft_differ(struct draft *draft, const char *theirs, const char *how)
{
    draft_tell(draft, theirs);
    json_object_set_new(draft->differs, theirs, json_string(how));
}

void draft_refuse(
        struct draft *draft, const char *theirs, const char *format, ...)
{
    struct toml_place place = {0};
    ZD_FREED TEXT_OF_ARGS(text, format);
    if (theirs) {
        draft_tell(draft, theirs);
        place = place_of(draft, theirs);
    }
    problem_add(
            &draft->problems, ZD_ERR_CONFIG, "E0220", place, NULL, "%s", text);
}

/* --- as text -------------------------------------------------------------- */

/* Text of a file or a user must not end the comment. */
static void put_comment(FILE *stream, const char *text)
{
    for (; *text; text++)
        fputc((unsigned char)*text < ' ' ? ' ' : *text, stream);
}

/* {"their.key": "why"} */
static void put_list(const char *title, json_t *lines, FILE *stream)
{
    if (json_object_size(lines))
        fprintf(stream, "# %s\n", title);
    JSON_MEMBERS(key, line, lines) {
        fputs("#   ", stream);
        put_comment(stream, key);
        fputs(": ", stream);
        put_comment(stream, json_string_value(line));
        fputc('\n', stream);
    }
}

static void put_head(const struct draft *draft, FILE *stream)
{
    size_t last = json_array_size(draft->defaults);
    JSON_EACH(item, draft->head) {
        fputs("# ", stream);
        put_comment(stream, json_string_value(item));
        fputc('\n', stream);
    }
    put_list("Not quite the same here:", draft->differs, stream);
    put_list(
            "Not needed here, training is the same without:", draft->notes,
            stream);
    if (last)
        fputs("# \"auto\" or null, so zerod's default:", stream);
    JSON_EACH_AT(i, item, draft->defaults) {
        fputs(i % 4 ? " " : "\n#   ", stream);
        put_comment(stream, json_string_value(item));
        fputs(i + 1 < last ? "," : "\n", stream);
    }
}

/* `line`: {"value", "why"}. */
static void put_line(FILE *stream, const char *name, const json_t *line)
{
    const char *why = json_string_at(line, "why");
    toml_write_key(stream, name);
    fputs(" = ", stream);
    toml_write(stream, json_object_get(line, "value"));
    if (*why) {
        fputs("  # ", stream);
        put_comment(stream, why);
    }
    fputc('\n', stream);
}

static void put_entries(
        FILE *stream, const char *section, const json_t *entries)
{
    JSON_EACH(entry, entries) {
        fprintf(stream, "\n[[%s]]\n", section);
        JSON_MEMBERS(key, line, entry)
            put_line(stream, key, line);
    }
}

/* Keys in the order of the reference; [[data.*]] follow [data]. */
static void put_values(const struct draft *draft, FILE *stream)
{
    const char *section = "";
    bool has_entries = false;
    char name[2 * SCHEMA_NAME_MAX];
    ZD_EACH(key, schema_table, schema_count) {
        if (!has_entries && strcmp(key->section, "data.eval") == 0) {
            put_entries(stream, "data.train", draft->train);
            put_entries(stream, "data.eval", draft->eval);
            has_entries = true;
        }
        ZD_PRINT(name, "%s.%s", key->section, key->name);
        const json_t *line = json_object_get(draft->values, name);
        if (!line)
            continue;
        if (strcmp(section, key->section) != 0)
            fprintf(stream, "\n[%s]\n", key->section);
        section = key->section;
        put_line(stream, key->name, line);
    }
}

char *draft_write(const struct draft *draft)
{
    char *text = NULL;
    FILE *stream = text_stream_open(&text, NULL);
    put_head(draft, stream);
    fputs("schema = 1\n", stream);
    put_values(draft, stream);
    fclose(stream);
    return text;
}

/* --- as a job ------------------------------------------------------------- */

/* The reason at the end of a line of the job: mostly a key of theirs. */
static void copy_why(const char *text, int line, char *out, size_t bytes)
{
    out[0] = '\0';
    while (--line > 0 && text)
        text = (text = strchr(text, '\n')) ? text + 1 : NULL;
    const char *end = text ? strchr(text, '\n') : NULL, *why = NULL;
    for (const char *at = text; end && (at = strstr(at, "  # ")) && at < end;)
        why = at += 4;
    if (why)
        snprintf(out, bytes, "%.*s", (int)(end - why), why);
}

void draft_find_problems(struct draft *draft, const struct job_request *request)
{
    struct job *job;
    char why[160];
    bool had_others = draft->problems.count > 0;
    job_load(request, &job);
    ZD_EACH(from, job_problems(job)->items, job_problems(job)->count) {
        copy_why(request->text, from->place.line, why, sizeof why);
        struct toml_place place = place_of(draft, why);
        if (!place.source && had_others)
            continue;
        problem_add(
                &draft->problems, from->status, from->code, place, from->label,
                "%s", from->what);
        if (from->help)
            problem_help(&draft->problems, "%s", from->help);
    }
    job_free(job);
    problems_sort(&draft->problems);
}
