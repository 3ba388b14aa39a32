/* chat_text.c - a conversation, or some messages of it, rendered by a template.
 */
#include "data/chat_skeleton.h"

#include "base/must.h"

#include <string.h>

bool chat_is_refusal(enum zd_status status)
{
    bool is = status != ZD_OK && strcmp(zd_error_get()->code, "E0415") == 0;
    if (is)
        zd_error_clear();
    return is;
}

static enum zd_status fail_rendering(
        const struct chat *chat, enum jinja_result result, const char *why)
{
    if (result == JINJA_OVER) {
        ZD_FAIL(ZD_ERR_DATA, "E0414", "the chat template %s", why);
        zd_fail_help(
                "no chat template needs as much: the template is broken or "
                "hostile, or the conversation too long");
    } else if (result == JINJA_UNKNOWN) {
        ZD_FAIL(ZD_ERR_DATA, "E0416", "the chat template cannot be used: %s",
                why);
    } else {
        ZD_FAIL(ZD_ERR_DATA, "E0415", "the chat template %s: %s (%s)",
                result == JINJA_RAISED ? "refuses the conversation"
                                       : "fails on the conversation",
                why, chat->name);
    }
    return ZD_ERR_DATA;
}

static void set(json_t *context, const char *key, const json_t *value)
{
    json_object_set(context, key, value ? (json_t *)value : json_null());
}

/* A conversation is rendered up to some 50 times, a value of it in 5 to 100
 * steps each time, and its texts are copied. A template that takes more is
 * hostile: it would take it for each row of a file. MOST_STEPS take about 2 s,
 * whatever the conversation. */
enum {
    MOST_STEPS = 100000000,
    BASE_STEPS = 2000000,
    VALUE_STEPS = 5000,
    BYTE_STEPS = 4,
    BASE_BYTES = 32 << 20,
    VALUE_BYTES = 8 << 10,
    BYTE_BYTES = 64
};

/* JSON that was parsed, so its depth is bounded. */
static void allow(const json_t *value, struct jinja_limits *limits)
{
    const char *key;
    json_t *item;
    size_t i, bytes = json_string_length(value);
    limits->steps += VALUE_STEPS + BYTE_STEPS * bytes;
    limits->bytes += VALUE_BYTES + BYTE_BYTES * bytes;
    json_array_foreach(value, i, item) allow(item, limits);
    json_object_foreach((json_t *)value, key, item) allow(item, limits);
}

static struct jinja_limits limits_of(const struct conversation *conversation)
{
    struct jinja_limits limits = {.steps = BASE_STEPS, .bytes = BASE_BYTES};
    allow(conversation->messages, &limits);
    allow(conversation->tools, &limits);
    allow(conversation->documents, &limits);
    allow(conversation->variables, &limits);
    if (limits.steps > MOST_STEPS)
        limits.steps = MOST_STEPS;
    limits.most_steps = limits.steps;
    return limits;
}

enum zd_status chat_render_text(
        struct chat_renderer *renderer, const struct conversation *conversation,
        const json_t *messages, bool add_generation_prompt,
        struct jinja_output *out)
{
    const struct chat *chat = renderer->chat;
    json_t *context = renderer->context;
    char why[300] = "";
    if (conversation->variables) { /* of this conversation alone */
        context = zd_must(json_copy(context));
        json_object_update(context, (json_t *)conversation->variables);
    }
    set(context, "messages", messages ? messages : conversation->messages);
    set(context, "tools", conversation->tools);
    set(context, "documents", conversation->documents);
    json_object_set_new(
            context, "add_generation_prompt",
            json_boolean(add_generation_prompt));
    jinja_output_fini(out);
    if (out == &renderer->text)
        renderer->limits = limits_of(conversation);
    enum jinja_result result = jinja_render(
            conversation->tools && chat->with_tools ? chat->with_tools
                                                    : chat->template,
            context, &renderer->limits, out, why, sizeof why);
    set(context, "messages", NULL);
    if (conversation->variables)
        json_decref(context);
    return result == JINJA_DONE ? ZD_OK : fail_rendering(chat, result, why);
}
