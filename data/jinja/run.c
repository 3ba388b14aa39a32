/* run.c - statements, and a template as a whole. */
#include "data/jinja/internal.h"

#include "base/must.h"
#include "base/text_stream.h"

#include <stdlib.h>
#include <string.h>

static struct jinja_cursor cursor_of(
        struct jinja *j, const struct jinja_item *item)
{
    return (struct jinja_cursor){j, item->text, item->text + item->bytes};
}

static void run(struct jinja *j, int from, int to);

static void run_if(struct jinja *j, int at)
{
    for (; j->items[at].tag != ENDIF && j->result == JINJA_DONE;
         at = j->items[at].next) {
        struct jinja_cursor c = cursor_of(j, &j->items[at]);
        if (!jinja_word(&c, "else") &&
            (jinja_word(&c, "if") || jinja_word(&c, "elif")) &&
            !jinja_is_true(jinja_evaluate(&c)))
            continue;
        run(j, at + 1, j->items[at].next);
        return;
    }
}

static void bind(
        struct jinja *j, char names[2][JINJA_NAME_BYTES], int count,
        json_t *item)
{
    if (count == 1)
        jinja_bind(j, names[0], item, false);
    for (int i = 0; count == 2 && i < 2; i++)
        jinja_bind(j, names[i], json_array_get(item, (size_t)i), false);
}

static void run_for(struct jinja *j, int at)
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
    if (json_is_object(list))
        list = jinja_keys(j, list);
    size_t size = json_array_size(list);
    int next = j->items[at].next;
    if (size == 0 && j->items[next].tag == ELSE)
        run(j, next + 1, j->items[next].next);
    for (size_t i = 0; i < size && j->result == JINJA_DONE; i++) {
        if (!jinja_push(j))
            break;
        json_t *loop = json_pack(
                "{s:I, s:I, s:b, s:b, s:I}", "index", (json_int_t)i + 1,
                "index0", (json_int_t)i, "first", i == 0, "last", i + 1 == size,
                "length", (json_int_t)size);
        if (i > 0)
            json_object_set(loop, "previtem", json_array_get(list, i - 1));
        if (i + 1 < size)
            json_object_set(loop, "nextitem", json_array_get(list, i + 1));
        jinja_bind(j, "loop", loop, false);
        json_decref(loop);
        bind(j, names, count, json_array_get(list, i));
        run(j, at + 1, next);
        jinja_pop(j);
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
    bool is_namespace;
    json_t *space = (json_t *)jinja_find(j, name, &is_namespace);
    j->fresh = NULL;
    const json_t *value = jinja_evaluate(c);
    if (!attribute[0])
        jinja_bind(j, name, value, value && value == j->fresh);
    else if (space && is_namespace)
        jinja_put(j, space, attribute, value);
    else
        jinja_stop(
                j, JINJA_UNKNOWN, "an attribute set of %s, no namespace", name);
}

static void write_out(struct jinja *j, const char *text, size_t bytes)
{
    if (jinja_charge(j, 1 + bytes / 64, bytes))
        j->written += fwrite(text, 1, bytes, j->out);
}

/* Spans do not overlap: one within another is part of it. */
static void run_generation(struct jinja *j, bool begins)
{
    struct jinja_output *out = j->output;
    if (begins && j->generations++ == 0) {
        out->spans = zd_must(realloc(
                out->spans, (out->span_count + 1) * sizeof *out->spans));
        out->spans[out->span_count++] =
                (struct jinja_span){j->written, j->written};
    } else if (!begins && j->generations > 0 && --j->generations == 0) {
        out->spans[out->span_count - 1].end = j->written;
    }
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
    value = jinja_spell(j, value);
    write_out(j, json_string_value(value), json_string_length(value));
}

static void run(struct jinja *j, int from, int to)
{
    if (!jinja_enter(j))
        return;
    for (int i = from; i < to && j->result == JINJA_DONE; i++) {
        const struct jinja_item *item = &j->items[i];
        struct jinja_cursor c = cursor_of(j, item);
        if (item->kind == TEXT) {
            write_out(j, item->text, item->bytes);
        } else if (item->kind == OUTPUT) {
            print(j, item);
        } else if (item->tag == IF || item->tag == FOR) {
            if (item->tag == IF)
                run_if(j, i);
            else
                run_for(j, i);
            while (j->items[i].tag != ENDIF && j->items[i].tag != ENDFOR)
                i = j->items[i].next;
        } else if (item->tag == SET) {
            jinja_word(&c, "set");
            run_set(j, &c);
        } else if (item->tag == GENERATION || item->tag == ENDGENERATION) {
            run_generation(j, item->tag == GENERATION);
        } else {
            jinja_stop(
                    j, JINJA_UNKNOWN, "`%.*s`",
                    (int)(item->bytes > 40 ? 40 : item->bytes), item->text);
        }
    }
    jinja_leave(j);
}

/* No value is freed by another's end: each is emptied while the pool still has
 * what it held, however deep they are nested. */
static void free_pool(struct jinja *j)
{
    for (size_t i = 0; i < j->pool_count; i++) {
        json_array_clear(j->pool[i]);
        json_object_clear(j->pool[i]);
    }
    for (size_t i = 0; i < j->pool_count; i++)
        json_decref(j->pool[i]);
    free(j->pool);
}

enum jinja_result jinja_parse(
        const char *source, struct jinja_template **out, char *why,
        size_t why_bytes)
{
    struct jinja j = {
            .left = jinja_budget_whole(), .why = why, .why_bytes = why_bytes};
    struct jinja_template *template = zd_must(calloc(1, sizeof *template));
    template->source = zd_must(strdup(source));
    why[0] = '\0';
    jinja_cut(&j, template);
    if (j.result == JINJA_DONE)
        *out = template;
    else
        jinja_free(template);
    return j.result;
}

void jinja_free(struct jinja_template *template)
{
    if (!template)
        return;
    free(template->items);
    free(template->source);
    free(template);
}

enum jinja_result jinja_render(
        const struct jinja_template *template, const json_t *context,
        struct jinja_output *out, char *why, size_t why_bytes)
{
    struct jinja_output output = {0};
    struct jinja j = {
            .left = jinja_budget_whole(),
            .items = template->items,
            .count = template->count,
            .output = &output,
            .why = why,
            .why_bytes = why_bytes};
    why[0] = '\0';
    j.out = text_stream_open(&output.text, &output.bytes);
    jinja_push(&j);
    json_object_update(j.scopes[0].values, (json_t *)context);
    run(&j, 0, j.count);
    while (j.scope_count > 0)
        jinja_pop(&j);
    fclose(j.out);
    free_pool(&j);
    if (j.result != JINJA_DONE)
        jinja_output_fini(&output);
    else
        *out = output;
    return j.result;
}

void jinja_output_fini(struct jinja_output *output)
{
    free(output->spans);
    free(output->text);
    *output = (struct jinja_output){0};
}
