/* foreign.c - each key of a file finds its row. */
#include "daemon/init/foreign.h"

#include "base/must.h"
#include "base/suggest.h"
#include "base/words.h"
#include "daemon/job/schema.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { DEPTH_MAX = 16, NAME_BYTES = 300 };

/* --- values, as tables have them ------------------------------------------ */

/* true, null, 0.9, a string as it is. The rest as JSON. */
static void put_word(const json_t *value, char *out, size_t bytes)
{
    ZD_FREED char *dumped = NULL;
    const char *text = json_string_value(value);
    if (!text)
        text = dumped = json_dumps(
                value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
    snprintf(out, bytes, "%s", text ? text : "?");
}

static bool is_word(const json_t *value, const char *word)
{
    char text[200];
    put_word(value, text, sizeof text);
    return strcasecmp(text, word) == 0 ||
           (strchr(word, '*') && fnmatch(word, text, FNM_CASEFOLD) == 0);
}

/* What `words` has for a value; NULL: nothing. */
static const json_t *find_word(json_t *words, const json_t *value)
{
    JSON_MEMBERS(word, ours, words) {
        if (is_word(value, word))
            return ours;
    }
    return NULL;
}

/* Also an object whose "enabled" is false. */
static bool is_off(const json_t *value)
{
    return json_is_false(value) || json_is_null(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) &&
            (!json_object_size(value) ||
             json_is_false(json_object_get(value, "enabled")))) ||
           (json_is_string(value) && !json_string_length(value));
}

/* Not given, null or "auto". */
static bool is_open(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_string(value) && !strcmp(json_string_value(value), "auto"));
}

/* What a key of ours accepts: DeepSpeed writes 5e8 and 1e9 for integers, YAML
 * has numbers in quotes, and a list may have one name. */
static json_t *value_for(const char *key, const json_t *value)
{
    char section[SCHEMA_NAME_MAX], *end;
    const char *dot = strrchr(key, '.'), *text = json_string_value(value);
    ZD_PRINT(section, "%.*s", (int)(dot - key), key);
    const struct schema_key *schema = schema_find(section, dot + 1);
    if (schema && schema->type == SCHEMA_STRING && json_array_size(value) == 1)
        return json_deep_copy(json_array_get(value, 0));
    if (schema && schema_is_number(schema) && text && *text) {
        double number = strtod(text, &end);
        if (!*end && isfinite(number))
            return json_real(number);
    }
    return json_deep_copy(value);
}

const json_t *foreign_get(const struct foreign *from, const char *name)
{
    const json_t *at = from->root;
    char part[100];
    while (at && *name) {
        size_t bytes = strcspn(name, ".");
        ZD_PRINT(part, "%.*s", (int)bytes, name);
        at = json_object_get(at, part);
        name += bytes + (name[bytes] == '.');
    }
    return at;
}

/* --- conditions ----------------------------------------------------------- */

static bool is_variant(const struct foreign *from)
{
    const json_t *keys = json_object_get(from->table, "variant");
    JSON_EACH(key, keys)
        if (json_object_get(from->root, json_string_value(key)))
            return true;
    return false;
}

static bool holds_one(const struct foreign *from, const char *condition)
{
    bool is_not = condition[0] == '!', holds;
    char name[100];
    condition += is_not;
    size_t bytes = strcspn(condition, "!=");
    const char *equals = condition[bytes] ? strchr(condition, '=') : NULL;
    ZD_PRINT(name, "%.*s", (int)bytes, condition);
    const json_t *value = foreign_get(from, name);
    if (!strcmp(name, "--data"))
        holds = json_array_size(from->draft->train) > 0;
    else if (!strcmp(name, "@"))
        holds = is_variant(from);
    else if (!equals)
        holds = value && !is_off(value) && !is_word(value, "no");
    else
        holds = (value && is_word(value, equals + 1)) ==
                (condition[bytes] == '=');
    return holds != is_not;
}

bool foreign_holds(const struct foreign *from, const char *condition)
{
    char one[200];
    while (condition && *condition) {
        const char *next = strstr(condition, " & ");
        size_t bytes = next ? (size_t)(next - condition) : strlen(condition);
        ZD_PRINT(one, "%.*s", (int)bytes, condition);
        if (!holds_one(from, one))
            return false;
        condition = next ? next + 3 : NULL;
    }
    return true;
}

/* --- what becomes of a key ------------------------------------------------ */

void foreign_refuse(struct foreign *from, const char *why)
{
    char word[200];
    put_word(from->value, word, sizeof word);
    draft_refuse(
            from->draft, from->name, "%s: %s = %.100s%s: %s", from->path,
            from->name, word, from->is_default ? ", their default" : "", why);
}

void foreign_note(struct foreign *from, const char *why)
{
    draft_note(from->draft, from->name, why);
}

static void note(struct foreign *from, const char *name, const char *why)
{
    if (!from->is_default)
        draft_note(from->draft, name, why);
}

/* Names on a hub, of models and data, come with how to get them. */
static void tell_hub(struct draft *draft, const char *key, const json_t *value)
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
                draft,
                "data of a hub, unless %s is a file: hf download %s "
                "--repo-type dataset --local-dir %s, and name the files in "
                "[[data.train]]",
                path, path, path);
    else
        draft_say(
                draft,
                "model.path is a name on a hub: hf download %s --local-dir %s",
                path, path);
}

/* The values that `key` is of, and its name there. */
static json_t *find_place(struct foreign *from, const char **key)
{
    struct draft *draft = from->draft;
    if (!strncmp(*key, "data.eval.", 10)) {
        *key += strlen("data.eval.");
        json_array_append_new(draft->eval, json_object());
        return json_array_get(draft->eval, json_array_size(draft->eval) - 1);
    }
    if (strncmp(*key, "data.train.", 11) != 0)
        return draft->values;
    *key += strlen("data.train.");
    return from->source ? from->source : draft_source(draft);
}

/* Inside another format's file the optimizer and the schedule of a DeepSpeed
 * configuration count, and for all else that file. */
static void set_part(
        struct foreign *from, const char *key, json_t *value, const char *other)
{
    bool counts = strncmp(key, "optim.", 6) == 0;
    draft_note(
            from->draft, counts ? other : from->name,
            counts ? "overridden by the DeepSpeed configuration"
                   : "overridden beside the DeepSpeed configuration");
    if (counts)
        draft_replace(from->draft, key, json_incref(value), from->name);
}

static void set_again(
        struct foreign *from, const char *key, json_t *value, const json_t *old)
{
    const char *other = json_string_at(old, "why"), *name = from->name;
    struct draft *draft = from->draft;
    char why[NAME_BYTES];
    if (strncmp(other, "--", 2) == 0) {
        ZD_PRINT(why, "overridden by %s", other);
        foreign_note(from, why);
    } else if (json_is_true(json_object_get(from->row, "over"))) {
        ZD_PRINT(why, "overridden by %s", name);
        note(from, other, why);
        ZD_PRINT(why, "%s%s", name, from->is_default ? ", their default" : "");
        draft_replace(draft, key, json_incref(value), why);
    } else if (from->is_default) {
        return;
    } else if (from->is_part) {
        set_part(from, key, value, other);
    } else if (!json_equal(json_object_get(old, "value"), value)) {
        draft_refuse(
                draft, name, "%s: %s and %s set %s to different values",
                from->path, name, other, key);
    } else if (!json_object_get(draft->told, name)) {
        foreign_note(from, "another key says the same");
    }
}

void foreign_set(struct foreign *from, const char *key, json_t *value)
{
    const char *inner = key;
    json_t *values = find_place(from, &inner);
    json_t *old = json_object_get(values, inner);
    bool is_entry = values != from->draft->values;
    if (old && (!is_entry || !strncmp(json_string_at(old, "why"), "--", 2)))
        set_again(from, key, value, old);
    else {
        draft_set_entry(
                values, inner, json_incref(value),
                from->is_default ? "their default" : from->name);
        tell_hub(from->draft, key, value);
    }
    if (!from->is_default)
        draft_tell(from->draft, from->name);
    json_decref(value);
}

/* One item of a list for each of `keys`. */
static void set_keys(struct foreign *from, json_t *keys)
{
    if (json_array_size(from->value) != json_array_size(keys)) {
        foreign_refuse(from, "must be a list of two numbers");
        return;
    }
    JSON_EACH_AT(i, key, keys)
        foreign_set(
                from, json_string_value(key),
                json_deep_copy(json_array_get(from->value, i)));
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

static void set_key(struct foreign *from)
{
    json_t *keys = json_object_get(from->row, "keys");
    const char *key = json_string_at(from->row, "key");
    const char *text = json_string_value(from->value);
    if (text && strstr(text, "${"))
        foreign_refuse(from, "${..} is not resolved: write the value");
    else if (keys)
        set_keys(from, keys);
    else if (text && json_object_get(from->row, "split"))
        foreign_set(from, key, foreign_split(text));
    else
        foreign_set(from, key, value_for(key, from->value));
}

static void take_word(struct foreign *from, const json_t *word)
{
    const char *ours_key = json_string_at(from->row, "key");
    if (!json_is_object(word)) {
        foreign_set(from, ours_key, json_deep_copy(word));
        return;
    }
    JSON_MEMBERS(key, ours, word) {
        if (!strcmp(key, "refuse"))
            foreign_refuse(from, json_string_value(ours));
        else if (!strcmp(key, "differs"))
            draft_differ(from->draft, from->name, json_string_value(ours));
        else
            foreign_set(from, key, json_deep_copy(ours));
    }
}

static void take_value(struct foreign *from, const char *name, json_t *value)
{
    const json_t *row = from->row;
    const json_t *word = find_word(json_object_get(row, "words"), value);
    const char *off = json_string_at(row, "off");
    const char *otherwise = json_string_at(row, "else");
    const char *why = json_string_at(row, "note");
    const char *converter = json_string_at(row, "take");
    const char *differs = json_string_at(row, "differs");
    bool is_noted = word ? json_is_null(word) : off && is_off(value);
    from->name = name;
    from->value = value;
    if (is_noted)
        note(from, name,
             why             ? why
             : is_off(value) ? "off, as here"
                             : "as here");
    else if (!foreign_holds(from, json_string_at(row, "needs")))
        note(from, name, json_string_at(row, "idle"));
    else if (converter)
        from->converter(converter)(from);
    else if (word)
        take_word(from, word);
    else if (off || otherwise)
        foreign_refuse(from, off ? off : otherwise);
    else if (json_object_get(row, "key") || json_object_get(row, "keys")) {
        set_key(from);
        if (differs && !is_off(value) && !from->is_part)
            draft_differ(from->draft, name, differs);
    } else if (why)
        note(from, name, why);
}

/* null says nothing, "auto" asks for our default, or for what the file around
 * it says. */
static void leave_open(
        struct foreign *from, const char *name, const json_t *value)
{
    struct draft *draft = from->draft;
    const char *key = json_string_at(from->row, "key");
    if (from->is_part && key && draft_has(draft, key)) {
        draft_note(draft, name, "set by the file that names this one");
        return;
    }
    draft_tell(draft, name);
    json_array_append_new(draft->defaults, json_string(name));
    if (key && !json_is_null(value) && !from->is_part)
        json_object_set_new(draft->automatic, key, json_true());
}

static void take_row(
        struct foreign *from, const json_t *row, const char *name,
        json_t *value)
{
    json_auto_t *list = NULL;
    from->row = row;
    json_object_set(from->taken, name, value);
    if (is_open(value) && !find_word(json_object_get(row, "words"), value)) {
        leave_open(from, name, value);
        return;
    }
    if (json_object_get(row, "each") && json_is_string(value))
        list = foreign_split(json_string_value(value));
    else if (json_object_get(row, "each") && json_is_array(value))
        list = json_incref(value);
    JSON_EACH(item, list)
        take_value(from, name, item);
    if (!list)
        take_value(from, name, value);
}

/* --- keys ----------------------------------------------------------------- */

/* By its whole name, or a name that ends in '*'. *inside_out: the table has
 * keys in it. */
static const json_t *find_row(
        const struct foreign *from, const char *name, bool *inside_out)
{
    json_t *rows = json_object_get(from->table, "rows");
    const json_t *found = json_object_get(rows, name);
    size_t bytes = strlen(name);
    *inside_out = false;
    JSON_MEMBERS(key, row, rows) {
        size_t length = strlen(key);
        if (!found && key[length - 1] == '*' &&
            strncmp(key, name, length - 1) == 0)
            found = row;
        *inside_out |= strncmp(key, name, bytes) == 0 && key[bytes] == '.';
    }
    return found;
}

static void refuse_unknown(struct foreign *from)
{
    static const char ignoring[] = "ignoring it could change training";
    const char *typed = from->name + strlen(from->prefix);
    const char *dot = strrchr(typed, '.');
    size_t head = dot ? (size_t)(dot + 1 - typed) : 0;
    char why[200];
    struct suggestion nearest = {0};
    JSON_MEMBERS(key, row, json_object_get(from->table, "rows")) {
        if (strncmp(key, typed, head) == 0)
            suggest_offer(
                    &nearest, typed + head,
                    edit_distance(typed + head, key + head), key);
    }
    ZD_PRINT(
            why, "unsupported key; %s%.100s%s",
            nearest.word ? "did you mean `" : ignoring,
            nearest.word ? nearest.word : "", nearest.word ? "`?" : "");
    foreign_refuse(from, why);
}

static void take_object(
        struct foreign *from, const char *prefix, const json_t *object,
        int depth)
{
    char name[NAME_BYTES];
    JSON_MEMBERS(key, value, object) {
        bool inside;
        ZD_PRINT(name, "%s%s", prefix, key);
        const json_t *row =
                find_row(from, name + strlen(from->prefix), &inside);
        bool is_late = json_is_true(json_object_get(row, "late"));
        bool is_empty = json_is_object(value) && !json_object_size(value);
        if (!row && inside && json_object_size(value) && depth < DEPTH_MAX) {
            strncat(name, ".", sizeof name - strlen(name) - 1);
            take_object(from, name, value, depth + 1);
        } else if (is_late != from->is_late) {
            continue;
        } else if (row) {
            take_row(from, row, name, value);
        } else if (
                json_is_null(value) ||
                (inside && (is_open(value) || is_empty))) {
            json_array_append_new(from->draft->defaults, json_string(name));
        } else {
            from->name = name;
            from->value = value;
            refuse_unknown(from);
        }
    }
}

/* Keys that made nothing. What is in a list of data sets tells of itself. */
static void tell_rest(struct foreign *from)
{
    JSON_MEMBERS(name, value, from->taken) {
        if (!json_object_get(from->draft->told, name) &&
            !json_array_size(value))
            draft_note(
                    from->draft, name,
                    is_off(value) ? "off" : "nothing to set beside other keys");
    }
}

/* --- their defaults ------------------------------------------------------- */

static bool is_given(const struct foreign *from, const char *names)
{
    char name[NAME_BYTES];
    while (words_next(&names, " ", name, sizeof name)) {
        const json_t *value = foreign_get(from, name);
        if (value && !json_is_null(value))
            return true;
    }
    return false;
}

/* What a row says of a file that has none of its keys. */
static void take_default(
        struct foreign *from, const char *name, const json_t *row)
{
    json_t *value = json_object_get(row, "default");
    const char *key = json_string_at(row, "key");
    const char *names = json_string_at(row, "names");
    bool holds = value && foreign_holds(from, json_string_at(row, "when"));
    const json_t *choices = json_object_get(row, "defaults"), *item;
    for (size_t i = 0; !holds && (item = json_array_get(choices, i)); i++)
        if ((holds = foreign_holds(from, json_string_at(item, "when"))))
            value = json_object_get(item, "value");
    bool is_first = strncmp(names, name, strlen(name)) == 0;
    if (!holds || !is_first || is_given(from, names) ||
        (key && json_object_get(from->draft->automatic, key)))
        return;
    from->row = row;
    take_value(from, name, value);
}

/* Inside another format's file the schedule of a DeepSpeed configuration has
 * DeepSpeed's defaults; all else has those of the file. */
static void take_defaults(struct foreign *from)
{
    struct draft *draft = from->draft;
    from->is_default = true;
    JSON_MEMBERS(name, row, json_object_get(from->table, "rows")) {
        const char *when = json_string_at(row, "when");
        if (!from->is_part ||
            (when && !strncmp(when, "scheduler.", strlen("scheduler."))))
            take_default(from, name, row);
    }
    from->is_default = false;
    if (from->is_part)
        return;
    const json_t *defaults = json_object_get(from->table, "defaults");
    JSON_EACH(row, defaults) {
        const char *key = json_string_at(row, "key");
        const char *why = json_string_at(row, "why");
        if (!json_object_get(draft->automatic, key) &&
            foreign_holds(from, json_string_at(row, "when")))
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

void foreign_walk(struct foreign *from)
{
    from->table = foreign_table(from->option);
    from->taken = json_object();
    for (int late = 0; late < 2; late++) {
        from->is_late = late;
        take_object(from, from->prefix, from->root, 0);
    }
    if (!from->is_part)
        from->finish(from);
    take_defaults(from);
    if (!from->is_part)
        drop_idle(from->draft);
    tell_rest(from);
    json_decref(from->taken);
    json_decref(from->table);
}
