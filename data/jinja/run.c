/* run.c - runs statements, macros and whole renderings. */
#include "data/jinja/tree.h"

#include "base/must.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum flow { GO_ON, LEAVE_LOOP, NEXT_ITEM };

static enum flow run(struct jinja *j, const struct statement *s);

/* Assigns to a name, a tuple of names or an attribute of a namespace. */
static void assign(
        struct jinja *j, const struct node *target, struct value value)
{
    struct items items;
    if (!jinja_enter(j))
        return;
    if (target->kind == NAME) {
        jinja_bind(j, target->symbol, value);
    } else if (target->kind == ATTRIBUTE) {
        struct value space = jinja_evaluate(j, target->parts[0]);
        if (space.kind != NAMESPACE)
            jinja_fail(
                    j, "cannot set an attribute of %.*s, which is no namespace",
                    (int)target->parts[0]->constant.bytes,
                    target->parts[0]->constant.text);
        else
            jinja_put(j, space, target->constant, value);
    } else if (value.kind == UNDEFINED) {
        jinja_use_undefined(j, value);
    } else if (jinja_iterate(j, value, &items)) {
        if (items.count != (size_t)target->count)
            jinja_fail(
                    j, "cannot unpack %zu values into %d names", items.count,
                    target->count);
        for (int i = 0; i < target->count && is_ok(j); i++)
            assign(j, target->parts[i], items.at[i]);
    }
    jinja_leave(j);
}

/* Runs a body in its own scope. */
static enum flow run_within(struct jinja *j, const struct statement *body)
{
    struct scope *outer = j->scope;
    jinja_push(j, outer);
    enum flow flow = run(j, body);
    j->scope = outer;
    return flow;
}

static enum flow run_if(struct jinja *j, const struct statement *s)
{
    for (; s && is_ok(j); s = s->other) {
        j->line = s->line;
        if (!s->value || jinja_is_true(jinja_evaluate(j, s->value)))
            return is_ok(j) ? run(j, s->body) : GO_ON;
    }
    return GO_ON;
}

/* The items for which the loop's condition holds. */
static struct items chosen(
        struct jinja *j, const struct statement *s, const struct items *all)
{
    struct value list = jinja_list(j, LIST, 0);
    struct scope *outer = j->scope;
    for (size_t i = 0; i < all->count && is_ok(j); i++) {
        jinja_push(j, outer);
        assign(j, s->target, all->at[i]);
        if (jinja_is_true(jinja_evaluate(j, s->only)))
            jinja_append(j, list, all->at[i]);
    }
    j->scope = outer;
    return *list.items;
}

static enum flow run_for(struct jinja *j, const struct statement *s)
{
    struct scope *outer = j->scope;
    struct items items;
    if (!jinja_iterate(j, jinja_evaluate(j, s->value), &items))
        return GO_ON;
    if (s->only)
        items = chosen(j, s, &items);
    if (items.count == 0 && s->other)
        return run_within(j, s->other);
    struct loop *loop = jinja_alloc(j, sizeof *loop);
    *loop = (struct loop){.items = items};
    for (; loop->at < items.count && is_ok(j); loop->at++) {
        jinja_push(j, outer);
        jinja_bind(j, SYMBOL_LOOP, (struct value){.kind = LOOP, .loop = loop});
        assign(j, s->target, items.at[loop->at]);
        if (!is_ok(j) || run(j, s->body) == LEAVE_LOOP)
            break;
    }
    j->scope = outer;
    return GO_ON;
}

/* transformers does not count the output of open captures in a block's
 * position, so a block in a macro gets the position where the outermost capture
 * began. */
static enum flow run_generation(struct jinja *j, const struct statement *s)
{
    size_t begin = j->captures ? j->outer_bytes : j->out->bytes;
    size_t mark = j->out->bytes;
    if (j->watch) /* other words would give other ranges */
        j->watch->depends |= j->captures > 0;
    if (j->captures++ == 0)
        j->outer_bytes = mark;
    enum flow flow = run_within(j, s->body);
    j->captures--;
    struct jinja_output *out = j->out;
    if (!jinja_charge(j, 1, sizeof *out->spans))
        return flow;
    ZD_GROW(out->spans, j->span_capacity, out->span_count + 1);
    size_t count =
            jinja_characters(jinja_slice(out->text + mark, out->bytes - mark));
    out->spans[out->span_count++] = (struct jinja_span){begin, count};
    return flow;
}

static enum flow run_one(struct jinja *j, const struct statement *s)
{
    struct value value;
    size_t mark;
    switch (s->kind) {
    case TEXT:
        jinja_write(j, s->text.text, s->text.bytes);
        return GO_ON;
    case PRINT:
        value = jinja_evaluate(j, s->value);
        if (is_ok(j))
            jinja_write_str(j, value);
        return GO_ON;
    case IF:
        return run_if(j, s);
    case FOR:
        return run_for(j, s);
    case SET:
        value = jinja_evaluate(j, s->value);
        if (is_ok(j))
            assign(j, s->target, value);
        return GO_ON;
    case SET_BLOCK:
        mark = jinja_capture(j);
        run_within(j, s->body);
        value = jinja_captured(j, mark);
        if (is_ok(j))
            assign(j, s->target, value);
        return GO_ON;
    case GENERATION:
        return run_generation(j, s);
    default:
        return s->kind == BREAK ? LEAVE_LOOP : NEXT_ITEM;
    }
}

static enum flow run(struct jinja *j, const struct statement *s)
{
    enum flow flow = GO_ON;
    if (!jinja_enter(j))
        return GO_ON;
    for (; s && flow == GO_ON && is_ok(j); s = s->next) {
        jinja_charge(j, 1, 0);
        j->line = s->line;
        flow = run_one(j, s);
    }
    jinja_leave(j);
    return flow;
}

/* --- macros --------------------------------------------------------------- */

static void bind_parameters(
        struct jinja *j, const struct macro *macro,
        const struct arguments *given)
{
    const struct value *caller = jinja_named(given, "caller", 6);
    size_t named = caller != NULL;
    if (caller)
        jinja_bind(j, SYMBOL_CALLER, *caller);
    for (int i = 0; i < macro->count && is_ok(j); i++) {
        const struct named *parameter = &macro->parameters[i];
        struct value name = parameter->name;
        const struct value *by_name = jinja_named(given, name.text, name.bytes);
        struct value value = jinja_undefined(name, MACRO);
        if ((size_t)i < given->count)
            value = given->at[i];
        else if (by_name)
            named++, value = *by_name;
        else if (parameter->value)
            value = jinja_evaluate(j, parameter->value);
        jinja_bind(j, parameter->symbol, value);
    }
    if (given->count > (size_t)macro->count)
        jinja_fail(
                j, "macro '%.*s' takes not more than %d arguments",
                (int)macro->name.bytes, macro->name.text, macro->count);
    if (given->named_count > named)
        jinja_fail(
                j, "macro '%.*s' takes no such keyword argument",
                (int)macro->name.bytes, macro->name.text);
}

struct value jinja_run_macro(
        struct jinja *j, const struct closure *closure,
        const struct arguments *given)
{
    struct scope *outer = j->scope;
    if (!jinja_enter(j))
        return jinja_none();
    jinja_push(j, closure->scope);
    bind_parameters(j, closure->macro, given);
    size_t mark = jinja_capture(j);
    if (is_ok(j))
        run(j, closure->macro->body);
    struct value text = jinja_captured(j, mark);
    j->scope = outer;
    jinja_leave(j);
    return text;
}

/* --- a rendering as a whole ----------------------------------------------- */

/* Turns each span's length in characters into its end. In a macro's text begin
 * was moved, so the span is not what the block wrote; the same in
 * transformers. */
static void end_spans(struct jinja_output *out)
{
    ZD_EACH(span, out->spans, out->span_count) {
        if (span->begin > out->bytes)
            span->begin = out->bytes;
        span->end = jinja_past_characters(
                jinja_slice(out->text, out->bytes), span->begin, span->end);
    }
}

static struct jinja_budget budget_within(const struct jinja_limits *limits)
{
    struct jinja_budget budget = jinja_budget_whole(JINJA_DEPTH_MAX);
    if (limits && limits->steps < budget.steps) {
        budget.steps = limits->steps;
        budget.most_steps = limits->most_steps;
    }
    if (limits && limits->bytes < budget.bytes)
        budget.bytes = budget.most_bytes = limits->bytes;
    return budget;
}

enum jinja_result jinja_render(
        const struct jinja_template *template, const json_t *context,
        struct jinja_limits *limits, struct jinja_output *out, char *why,
        size_t why_bytes)
{
    struct jinja_output output = {0};
    struct jinja j = {
            .left = budget_within(limits),
            .why = why,
            .why_bytes = why_bytes,
            .template = template,
            .watch = limits ? limits->watch : NULL,
            .out = &output};
    size_t steps = j.left.steps;
    why[0] = '\0';
    j.context = context;
    j.variables = jinja_alloc(
            &j, (size_t) template->name_count * sizeof *j.variables);
    memset(j.variables, 0, (size_t) template->name_count * sizeof *j.variables);
    jinja_write(&j, "", 0); /* there is text */
    if (j.result == JINJA_DONE)
        run(&j, template->body);
    jinja_release(&j);
    if (limits)
        limits->steps -= steps - j.left.steps;
    if (j.result != JINJA_DONE) {
        jinja_output_fini(&output);
        return j.result;
    }
    output.text[output.bytes] = '\0';
    end_spans(&output);
    *out = output;
    return JINJA_DONE;
}

void jinja_output_fini(struct jinja_output *output)
{
    free(output->spans);
    free(output->text);
    *output = (struct jinja_output){0};
}

/* --- the budget, and its memory --------------------------------------------
 */

enum { CHUNK_BYTES = 32 << 10, ALIGNMENT = 16 };

struct chunk {
    struct chunk *before;
    size_t used, capacity;
    _Alignas(ALIGNMENT) char bytes[];
};

struct jinja_budget jinja_budget_whole(int depth)
{
    return (struct jinja_budget){depth,           depth,
                                 JINJA_STEPS_MAX, JINJA_BYTES_MAX,
                                 JINJA_STEPS_MAX, JINJA_BYTES_MAX};
}

void jinja_stop(
        struct jinja *j, enum jinja_result result, int line, const char *format,
        ...)
{
    int used = 0;
    va_list args;
    if (!is_ok(j))
        return;
    j->result = result;
    if (line)
        used = snprintf(j->why, j->why_bytes, "line %d: ", line);
    va_start(args, format);
    if ((size_t)used < j->why_bytes)
        vsnprintf(j->why + used, j->why_bytes - (size_t)used, format, args);
    va_end(args);
}

bool jinja_refuse(struct jinja *j, size_t steps)
{
    if (steps > j->left.steps)
        jinja_stop(
                j, JINJA_OVER, 0, "takes more than %zu steps",
                j->left.most_steps);
    else
        jinja_stop(
                j, JINJA_OVER, 0, "makes more than %zu MiB of values and text",
                j->left.most_bytes >> 20);
    return false;
}

bool jinja_too_deep(struct jinja *j)
{
    jinja_stop(
            j, JINJA_OVER, 0, "nests more than %d levels deep",
            j->left.most_depth);
    return false;
}

bool jinja_read(struct jinja *j, size_t bytes)
{
    return jinja_charge(j, 1 + bytes / 64, 0);
}

bool jinja_affords(struct jinja *j, uint64_t count, size_t bytes)
{
    struct jinja_budget before = j->left;
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all))
        all = SIZE_MAX;
    bool affords = jinja_charge(j, all / 64, all);
    if (affords)
        j->left = before;
    return affords;
}

void *jinja_alloc(struct jinja *j, size_t bytes)
{
    struct chunk *chunk = j->chunks;
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    jinja_charge(j, 0, bytes);
    if (!chunk || chunk->capacity - chunk->used < bytes) {
        size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        chunk = zd_must(malloc(sizeof *chunk + capacity));
        *chunk = (struct chunk){j->chunks, 0, capacity};
        j->chunks = chunk;
    }
    chunk->used += bytes;
    return chunk->bytes + chunk->used - bytes;
}

void jinja_release(struct jinja *j)
{
    while (j->chunks) {
        struct chunk *chunk = j->chunks;
        j->chunks = chunk->before;
        free(chunk);
    }
}

void *jinja_extend(struct jinja *j, const void *base, size_t used, size_t more)
{
    size_t needed = used + more;
    for (int i = 0; i < 4; i++)
        if (j->grown[i].base == base && j->grown[i].used == used &&
            needed <= j->grown[i].capacity && used > 0) {
            j->grown[i].used = needed;
            return jinja_read(j, more) ? (void *)base : NULL;
        }
    size_t capacity = needed < 256 ? needed : needed + needed / 2;
    if (!jinja_charge(j, 1 + needed / 64, 0) || !jinja_affords(j, 1, capacity))
        return NULL;
    char *made = jinja_alloc(j, capacity);
    if (used)
        memcpy(made, base, used);
    j->grown[j->next_grown].base = made;
    j->grown[j->next_grown].used = needed;
    j->grown[j->next_grown].capacity = capacity;
    j->next_grown = (j->next_grown + 1) % 4;
    return made;
}
