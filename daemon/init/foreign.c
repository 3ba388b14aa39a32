/* foreign.c - each key of a file finds its row. */
#include "daemon/init/foreign.h"

#include "base/suggest.h"
#include "base/words.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH_MAX = 16, NAME_BYTES = 300 };

/* --- what becomes of a key ------------------------------------------------ */

void foreign_refuse(
        struct foreign *foreign, const char *name, const json_t *value,
        const char *why)
{
    char word[200];
    foreign_word(value, word, sizeof word);
    draft_refuse(
            foreign->draft, name, "%s: %s = %.100s%s: %s", foreign->path, name,
            word, foreign->is_default ? ", their default" : "", why);
}

static void note(struct foreign *foreign, const char *name, const char *why)
{
    if (!foreign->is_default)
        draft_note(foreign->draft, name, why);
}

/* Names on a hub, of models and data, come with how to get them. */
static void tell_hub(
        struct foreign *foreign, const char *key, const json_t *value)
{
    const char *path = json_string_value(value);
    bool is_data = strcmp(key, "data.train.path") == 0;
    const char *slash = path ? strchr(path, '/') : NULL;
    if (!path || (!is_data && strcmp(key, "model.path") != 0) ||
        path[0] == '.' || slash == path || (slash && strchr(slash + 1, '/')) ||
        (is_data && (!slash || strpbrk(path, "*?["))) ||
        access(path, F_OK) == 0)
        return;
    if (is_data)
        draft_say(
                foreign->draft,
                "data of a hub, unless %s is a file: hf download %s "
                "--repo-type dataset --local-dir %s, and name the files in "
                "[[data.train]]",
                path, path, path);
    else
        draft_say(
                foreign->draft,
                "model.path is a name on a hub: hf download %s --local-dir %s",
                path, path);
}

/* The values that `key` is of, and its name there. */
static json_t *find_place(struct foreign *foreign, const char **key)
{
    struct draft *draft = foreign->draft;
    if (!strncmp(*key, "data.eval.", 10)) {
        *key += strlen("data.eval.");
        json_array_append_new(draft->eval, json_object());
        return json_array_get(draft->eval, json_array_size(draft->eval) - 1);
    }
    if (strncmp(*key, "data.train.", 11) != 0)
        return draft->values;
    *key += strlen("data.train.");
    return foreign->source ? foreign->source : draft_source(draft);
}

/* Inside another format's file the optimizer and the schedule of a DeepSpeed
 * configuration count, and for all else that file. */
static void set_part(
        struct foreign *foreign, const char *name, const char *key,
        json_t *value, const char *other)
{
    bool counts = strncmp(key, "optim.", 6) == 0;
    draft_note(
            foreign->draft, counts ? other : name,
            counts ? "overridden by the DeepSpeed configuration"
                   : "overridden beside the DeepSpeed configuration");
    if (counts)
        draft_replace(foreign->draft, key, json_incref(value), name);
}

static void set_again(
        struct foreign *foreign, const char *name, const char *key,
        json_t *value, const json_t *old)
{
    const char *other = json_string_at(old, "why");
    struct draft *draft = foreign->draft;
    char why[NAME_BYTES];
    if (strncmp(other, "--", 2) == 0) {
        snprintf(why, sizeof why, "overridden by %s", other);
        draft_note(draft, name, why);
    } else if (json_is_true(json_object_get(foreign->row, "over"))) {
        snprintf(why, sizeof why, "overridden by %s", name);
        note(foreign, other, why);
        snprintf(
                why, sizeof why, "%s%s", name,
                foreign->is_default ? ", their default" : "");
        draft_replace(draft, key, json_incref(value), why);
    } else if (foreign->is_default) {
        return;
    } else if (foreign->is_part) {
        set_part(foreign, name, key, value, other);
    } else if (!json_equal(json_object_get(old, "value"), value)) {
        draft_refuse(
                draft, name, "%s: %s and %s set %s to different values",
                foreign->path, name, other, key);
    } else if (!json_object_get(draft->told, name)) {
        draft_note(draft, name, "another key says the same");
    }
}

void foreign_set(
        struct foreign *foreign, const char *name, const char *key,
        json_t *value)
{
    const char *inner = key;
    json_t *values = find_place(foreign, &inner);
    json_t *old = json_object_get(values, inner);
    bool is_entry = values != foreign->draft->values;
    if (old && (!is_entry || !strncmp(json_string_at(old, "why"), "--", 2)))
        set_again(foreign, name, key, value, old);
    else {
        draft_set_entry(
                values, inner, json_incref(value),
                foreign->is_default ? "their default" : name);
        tell_hub(foreign, key, value);
    }
    if (!foreign->is_default)
        draft_tell(foreign->draft, name);
    json_decref(value);
}

/* One item of a list for each of `keys`. */
static void set_keys(
        struct foreign *foreign, const char *name, const json_t *keys,
        const json_t *value)
{
    size_t i;
    json_t *key;
    if (json_array_size(value) != json_array_size(keys)) {
        foreign_refuse(foreign, name, value, "must be a list of two numbers");
        return;
    }
    json_array_foreach((json_t *)keys, i, key) foreign_set(
            foreign, name, json_string_value(key),
            json_deep_copy(json_array_get(value, i)));
}

json_t *foreign_split(const char *text)
{
    json_t *list = json_array();
    for (; *text; text += strspn(text, ", ")) {
        size_t bytes = strcspn(text, ", ");
        json_array_append_new(list, json_stringn(text, bytes));
        text += bytes;
    }
    return list;
}

static void set_key(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const json_t *row = foreign->row;
    const char *key = json_string_at(row, "key"),
               *text = json_string_value(value);
    if (text && strstr(text, "${"))
        foreign_refuse(
                foreign, name, value, "${..} is not resolved: write the value");
    else if (json_object_get(row, "keys"))
        set_keys(foreign, name, json_object_get(row, "keys"), value);
    else if (text && json_object_get(row, "split"))
        foreign_set(foreign, name, key, foreign_split(text));
    else
        foreign_set(foreign, name, key, foreign_for_key(key, value));
}

static void take_word(
        struct foreign *foreign, const char *name, const json_t *value,
        const json_t *word)
{
    const char *key;
    json_t *ours;
    if (!json_is_object(word)) {
        foreign_set(
                foreign, name, json_string_at(foreign->row, "key"),
                json_deep_copy(word));
        return;
    }
    json_object_foreach((json_t *)word, key, ours)
    {
        if (!strcmp(key, "refuse"))
            foreign_refuse(foreign, name, value, json_string_value(ours));
        else if (!strcmp(key, "differs"))
            draft_differ(foreign->draft, name, json_string_value(ours));
        else
            foreign_set(foreign, name, key, json_deep_copy(ours));
    }
}

static void take_value(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const json_t *row = foreign->row;
    const json_t *word =
            foreign_find_word(json_object_get(row, "words"), value);
    const char *off = json_string_at(row, "off"),
               *otherwise = json_string_at(row, "else");
    const char *idle = json_string_at(row, "idle"),
               *why = json_string_at(row, "note");
    bool is_noted =
            word ? json_is_null(word)
                 : foreign_is_same(json_object_get(row, "same"), value) ||
                            (off && foreign_is_off(value));
    if (is_noted)
        note(foreign, name,
             why                     ? why
             : foreign_is_off(value) ? "off, as here"
                                     : "as here");
    else if (!foreign_holds(foreign, json_string_at(row, "needs")))
        note(foreign, name, idle);
    else if (json_string_at(row, "take"))
        foreign->converter(json_string_at(row, "take"))(foreign, name, value);
    else if (word)
        take_word(foreign, name, value, word);
    else if (off || otherwise)
        foreign_refuse(foreign, name, value, off ? off : otherwise);
    else if (json_object_get(row, "key") || json_object_get(row, "keys"))
        set_key(foreign, name, value);
    else if (why)
        note(foreign, name, why);
}

/* null says nothing, "auto" asks for our default, or for what the file around
 * it says. */
static void leave_open(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const char *key = json_string_at(foreign->row, "key");
    if (foreign->is_part && key && draft_has(foreign->draft, key)) {
        draft_note(foreign->draft, name, "set by the file that names this one");
        return;
    }
    draft_tell(foreign->draft, name);
    json_array_append_new(foreign->draft->defaults, json_string(name));
    if (key && !json_is_null(value) && !foreign->is_part)
        json_object_set_new(foreign->draft->automatic, key, json_true());
}

static void take_row(
        struct foreign *foreign, const json_t *row, const char *name,
        const json_t *value)
{
    const json_t *words = json_object_get(row, "words");
    size_t i;
    json_t *item, *list = NULL;
    foreign->row = row;
    json_object_set(foreign->taken, name, (json_t *)value);
    if (foreign_is_open(value) && !foreign_find_word(words, value)) {
        leave_open(foreign, name, value);
        return;
    }
    if (json_object_get(row, "each") && json_is_string(value))
        list = foreign_split(json_string_value(value));
    else if (json_object_get(row, "each") && json_is_array(value))
        list = json_incref((json_t *)value);
    json_array_foreach(list, i, item) take_value(foreign, name, item);
    if (!list)
        take_value(foreign, name, value);
    json_decref(list);
}

/* --- keys ----------------------------------------------------------------- */

/* By its whole name, or a name that ends in '*'. *inside_out: the table has
 * keys in it. */
static const json_t *find_row(
        const struct foreign *foreign, const char *name, bool *inside_out)
{
    const json_t *rows = json_object_get(foreign->table, "rows");
    const json_t *found = json_object_get(rows, name);
    const char *key;
    json_t *row;
    size_t bytes = strlen(name);
    *inside_out = false;
    json_object_foreach((json_t *)rows, key, row)
    {
        size_t length = strlen(key);
        if (!found && key[length - 1] == '*' &&
            strncmp(key, name, length - 1) == 0)
            found = row;
        *inside_out |= strncmp(key, name, bytes) == 0 && key[bytes] == '.';
    }
    return found;
}

static void refuse_unknown(
        struct foreign *foreign, const char *name, const json_t *value)
{
    static const char ignoring[] = "ignoring it could change training";
    const char *typed = name + strlen(foreign->prefix), *key;
    const char *dot = strrchr(typed, '.');
    size_t head = dot ? (size_t)(dot + 1 - typed) : 0;
    json_t *row;
    char why[200];
    struct suggestion nearest = {0};
    json_object_foreach(json_object_get(foreign->table, "rows"), key, row)
    {
        if (strncmp(key, typed, head) == 0)
            suggest_offer(
                    &nearest, typed + head,
                    edit_distance(typed + head, key + head), key);
    }
    snprintf(
            why, sizeof why, "unsupported key; %s%.100s%s",
            nearest.word ? "did you mean `" : ignoring,
            nearest.word ? nearest.word : "", nearest.word ? "`?" : "");
    foreign_refuse(foreign, name, value, why);
}

static void take_object(
        struct foreign *foreign, const char *prefix, const json_t *object,
        int depth)
{
    const char *key;
    json_t *value;
    char name[NAME_BYTES];
    json_object_foreach((json_t *)object, key, value)
    {
        bool inside;
        snprintf(name, sizeof name, "%s%s", prefix, key);
        const json_t *row =
                find_row(foreign, name + strlen(foreign->prefix), &inside);
        bool is_late = json_is_true(json_object_get(row, "late"));
        bool is_empty = json_is_object(value) && !json_object_size(value);
        if (!row && inside && json_object_size(value) && depth < DEPTH_MAX) {
            strncat(name, ".", sizeof name - strlen(name) - 1);
            take_object(foreign, name, value, depth + 1);
        } else if (is_late != foreign->is_late) {
            continue;
        } else if (row) {
            take_row(foreign, row, name, value);
        } else if (
                json_is_null(value) ||
                (inside && (foreign_is_open(value) || is_empty))) {
            json_array_append_new(foreign->draft->defaults, json_string(name));
        } else {
            refuse_unknown(foreign, name, value);
        }
    }
}

/* Keys that made nothing. What is in a list of data sets tells of itself. */
static void tell_rest(struct foreign *foreign)
{
    const char *name;
    json_t *value;
    json_object_foreach(foreign->taken, name, value)
    {
        if (!json_object_get(foreign->draft->told, name) &&
            !json_array_size(value))
            draft_note(
                    foreign->draft, name,
                    foreign_is_off(value) ? "off"
                                          : "nothing to set beside other keys");
    }
}

/* --- their defaults ------------------------------------------------------- */

static bool is_given(const struct foreign *foreign, const char *names)
{
    char name[NAME_BYTES];
    while (words_next(&names, " ", name, sizeof name)) {
        const json_t *value = foreign_get(foreign, name);
        if (value && !json_is_null(value))
            return true;
    }
    return false;
}

/* What a row says of a file that has none of its keys. */
static void take_default(
        struct foreign *foreign, const char *name, const json_t *row)
{
    const json_t *value = json_object_get(row, "default");
    const char *key = json_string_at(row, "key"),
               *names = json_string_at(row, "names");
    bool holds = value && foreign_holds(foreign, json_string_at(row, "when"));
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(row, "defaults"), i, item)
    {
        if (holds || !foreign_holds(foreign, json_string_at(item, "when")))
            continue;
        holds = true;
        value = json_object_get(item, "value");
    }
    bool is_first = strncmp(names, name, strlen(name)) == 0;
    if (!holds || !is_first || is_given(foreign, names) ||
        (key && json_object_get(foreign->draft->automatic, key)))
        return;
    foreign->row = row;
    take_value(foreign, name, value);
}

/* Inside another format's file the schedule of a DeepSpeed configuration has
 * DeepSpeed's defaults; all else has those of the file. */
static void take_defaults(struct foreign *foreign)
{
    struct draft *draft = foreign->draft;
    const char *name, *why;
    json_t *row;
    size_t i;
    foreign->is_default = true;
    json_object_foreach(json_object_get(foreign->table, "rows"), name, row)
    {
        const char *when = json_string_at(row, "when");
        if (!foreign->is_part ||
            (when && !strncmp(when, "scheduler.", strlen("scheduler."))))
            take_default(foreign, name, row);
    }
    foreign->is_default = false;
    if (foreign->is_part)
        return;
    json_array_foreach(json_object_get(foreign->table, "defaults"), i, row)
    {
        const char *key = json_string_at(row, "key");
        why = json_string_at(row, "why");
        if (!json_object_get(draft->automatic, key) &&
            foreign_holds(foreign, json_string_at(row, "when")))
            draft_set(
                    draft, key, json_incref(json_object_get(row, "value")),
                    why ? why : "their default");
    }
}

/* What a whole dump of arguments has for other optimizers too. */
static void drop_idle(struct draft *draft)
{
    static const struct {
        const char *optimizer, *key;
    } idle[] = {
            {"lion", "optim.adam_epsilon"},
            {"sgd", "optim.adam_epsilon"},
            {"sgd", "optim.adam_beta1"},
            {"sgd", "optim.adam_beta2"}};
    const char *name = draft_text(draft, "optim.name");
    for (size_t i = 0; name && i < sizeof idle / sizeof idle[0]; i++)
        if (strstr(name, idle[i].optimizer) && draft_has(draft, idle[i].key)) {
            draft_note(draft, idle[i].key, "of no effect with this optimizer");
            draft_remove(draft, idle[i].key);
        }
}

/* --- a file --------------------------------------------------------------- */

void foreign_walk(struct foreign *foreign)
{
    foreign->table = foreign_table(foreign->option);
    foreign->taken = json_object();
    for (int late = 0; late < 2; late++) {
        foreign->is_late = late;
        take_object(foreign, foreign->prefix, foreign->root, 0);
    }
    if (!foreign->is_part)
        foreign->finish(foreign);
    take_defaults(foreign);
    if (!foreign->is_part)
        drop_idle(foreign->draft);
    tell_rest(foreign);
    json_decref(foreign->taken);
    json_decref(foreign->table);
}
