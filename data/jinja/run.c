/* run.c - statements, and a template as a whole. */
#include "data/jinja/internal.h"

#include "base/text_stream.h"

#include <stdlib.h>
#include <string.h>

static struct jinja_cursor cursor_of(
        struct jinja *j, const struct jinja_item *item)
{
    return (struct jinja_cursor){j, item->text, item->text + item->bytes};
}

static bool begins(struct jinja *j, int at, const char *word)
{
    struct jinja_cursor c = cursor_of(j, &j->items[at]);
    return j->items[at].kind == STATEMENT && jinja_word(&c, word);
}

/* The next elif, else or endif (endfor) of the block that begins at `at`. */
static int find_next(struct jinja *j, int at, int end)
{
    for (int i = at + 1, depth = 0; i < end; i++) {
        if (begins(j, i, "if") || begins(j, i, "for"))
            depth++;
        else if (begins(j, i, "endif") || begins(j, i, "endfor")) {
            if (depth-- == 0)
                return i;
        } else if (depth == 0 && (begins(j, i, "elif") || begins(j, i, "else")))
            return i;
    }
    jinja_stop(j, JINJA_UNKNOWN, "a block without its end");
    return end;
}

static int find_end(struct jinja *j, int at, int end)
{
    while (j->result == JINJA_DONE &&
           !begins(j, at = find_next(j, at, end), "endif") && at < end &&
           !begins(j, at, "endfor"))
        ;
    return at;
}

static void run(struct jinja *j, int from, int to);

static void run_if(struct jinja *j, int at, int end)
{
    bool is_done = false;
    while (j->result == JINJA_DONE && !begins(j, at, "endif")) {
        int next = find_next(j, at, end);
        struct jinja_cursor c = cursor_of(j, &j->items[at]);
        if (j->result != JINJA_DONE || is_done) {
            at = next;
            continue;
        }
        if (jinja_word(&c, "if") || jinja_word(&c, "elif"))
            is_done = jinja_is_true(jinja_evaluate(&c));
        else
            is_done = true; /* else */
        if (is_done)
            run(j, at + 1, next);
        at = next;
    }
}

static void bind(
        struct jinja *j, char names[2][JINJA_NAME_BYTES], int count,
        json_t *item)
{
    json_t *scope = j->scopes[j->scope_count - 1];
    if (count == 1)
        json_object_set(scope, names[0], item);
    for (int i = 0; count == 2 && i < 2; i++) {
        json_t *part = json_array_get(item, (size_t)i);
        json_object_set(scope, names[i], part ? part : json_null());
    }
}

static void run_for(struct jinja *j, int at, int end)
{
    struct jinja_cursor c = cursor_of(j, &j->items[at]);
    char names[2][JINJA_NAME_BYTES];
    int count = 1;
    jinja_word(&c, "for");
    bool is_good = jinja_name(&c, names[0]);
    if (is_good && jinja_take(&c, ","))
        is_good = jinja_name(&c, names[count++]);
    if (!is_good || !jinja_word(&c, "in"))
        jinja_stop(j, JINJA_UNKNOWN, "a loop of another form");
    const json_t *list =
            j->result == JINJA_DONE ? jinja_operand(&c, true) : NULL;
    jinja_blanks(&c);
    if (c.at < c.end)
        jinja_stop(j, JINJA_UNKNOWN, "a loop with a condition");
    if (json_is_object(list)) {
        json_t *keys = jinja_keep(j, json_array()), *value;
        const char *key;
        json_object_foreach((json_t *)list, key, value)
                json_array_append_new(keys, json_string(key));
        list = keys;
    }
    int body = find_next(j, at, end);
    size_t size = json_array_size(list);
    for (size_t i = 0; i < size && j->result == JINJA_DONE; i++) {
        jinja_push(j);
        if (j->result != JINJA_DONE)
            break;
        json_t *loop = json_pack(
                "{s:I, s:I, s:b, s:b, s:I}", "index", (json_int_t)i + 1,
                "index0", (json_int_t)i, "first", i == 0, "last", i + 1 == size,
                "length", (json_int_t)size);
        if (i > 0)
            json_object_set(loop, "previtem", json_array_get(list, i - 1));
        if (i + 1 < size)
            json_object_set(loop, "nextitem", json_array_get(list, i + 1));
        json_object_set_new(j->scopes[j->scope_count - 1], "loop", loop);
        bind(j, names, count, json_array_get(list, i));
        run(j, at + 1, body);
        j->scope_count--;
    }
}

static void run_set(struct jinja *j, struct jinja_cursor *c)
{
    char name[JINJA_NAME_BYTES], attribute[JINJA_NAME_BYTES] = "";
    bool is_good = jinja_name(c, name);
    if (is_good && jinja_take(c, "."))
        is_good = jinja_name(c, attribute);
    if (!is_good || !jinja_take(c, "=")) {
        jinja_stop(j, JINJA_UNKNOWN, "{%% set %%} of a block");
        return;
    }
    const json_t *value = jinja_evaluate(c);
    json_t *target = attribute[0] ? (json_t *)jinja_find(j, name)
                                  : j->scopes[j->scope_count - 1];
    if (j->result == JINJA_DONE)
        json_object_set(
                target, attribute[0] ? attribute : name,
                value ? (json_t *)value : json_null());
}

static void print(struct jinja *j, const struct jinja_item *item)
{
    struct jinja_cursor c = cursor_of(j, item);
    const json_t *value = jinja_evaluate(&c);
    jinja_blanks(&c);
    if (c.at < c.end)
        jinja_stop(
                j, JINJA_UNKNOWN, "`%.*s`",
                (int)(c.end - c.at > 40 ? 40 : c.end - c.at), c.at);
    char *text = j->result == JINJA_DONE ? jinja_spell(value) : NULL;
    if (text)
        fputs(text, j->out);
    free(text);
}

static void run(struct jinja *j, int from, int to)
{
    for (int i = from; i < to && j->result == JINJA_DONE; i++) {
        const struct jinja_item *item = &j->items[i];
        struct jinja_cursor c = cursor_of(j, item);
        if (++j->steps > JINJA_STEPS_MAX)
            jinja_stop(j, JINJA_UNKNOWN, "a template that takes too long");
        else if (item->kind == TEXT)
            fwrite(item->text, 1, item->bytes, j->out);
        else if (item->kind == OUTPUT)
            print(j, item);
        else if (begins(j, i, "if")) {
            run_if(j, i, to);
            i = find_end(j, i, to);
        } else if (begins(j, i, "for")) {
            run_for(j, i, to);
            i = find_end(j, i, to);
        } else if (jinja_word(&c, "set"))
            run_set(j, &c);
        else if (
                !jinja_word(&c, "generation") &&
                !jinja_word(&c, "endgeneration"))
            jinja_stop(
                    j, JINJA_UNKNOWN, "`%.*s`",
                    (int)(item->bytes > 40 ? 40 : item->bytes), item->text);
    }
}

enum jinja_result jinja_render(
        const char *source, const json_t *context, char **text_out, char *why,
        size_t why_bytes)
{
    struct jinja j = {.why = why, .why_bytes = why_bytes};
    char *text = NULL;
    size_t bytes;
    why[0] = '\0';
    j.items = calloc(JINJA_ITEMS_MAX, sizeof *j.items);
    j.pool = json_array();
    j.out = text_stream_open(&text, &bytes);
    if (!j.items || !j.pool) {
        jinja_stop(&j, JINJA_UNKNOWN, "no memory");
    } else {
        j.scopes[j.scope_count++] =
                jinja_keep(&j, json_copy((json_t *)context));
        jinja_cut(&j, source);
        run(&j, 0, j.count);
    }
    fclose(j.out);
    json_decref(j.pool);
    free(j.items);
    if (j.result != JINJA_DONE) {
        free(text);
        return j.result;
    }
    *text_out = text;
    return JINJA_DONE;
}
