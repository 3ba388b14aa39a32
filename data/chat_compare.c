/* chat_compare.c - a model's own chat template beside the one that is used. */
#include "base/log.h"
#include "base/must.h"
#include "data/document.h"
#include "data/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

struct turn {
    const char *role, *content;
};

static const struct turn turns[] = {
        {"system", "Be brief."},
        {"user", "What is 2 + 2?"},
        {"assistant", "Four."},
        {"tool", "4"},
        {"assistant", "It is 4."}};

/* Conversations out of these turns, and what is special about each. */
static const struct {
    int first, count;
    const char *what;
} cases[] = {
        {0, 3, "conversations"},
        {1, 2, "conversations without a system message"},
        {0, 5, "conversations with a tool's turn"},
};

/* A conversation as we render it (NUL-terminated) and as a template takes it;
 * both to be freed. */
static char *render_ours(
        enum chat_template ours, const struct tokenizer *tokenizer, int first,
        int count, json_t **context_out)
{
    struct tokenizer_chat chat = tokenizer_chat(tokenizer);
    struct recipe recipe = {
            .tokenizer = tokenizer,
            .chat_template = ours,
            .train_on = TRAIN_ON_ALL};
    struct chat_message messages[sizeof turns / sizeof turns[0]];
    struct document document = {0};
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        const struct turn *turn = &turns[first + i];
        messages[i] = (struct chat_message){
                turn->role, turn->content, strlen(turn->content), false};
        json_array_append_new(
                list, json_pack(
                              "{s:s, s:s}", "role", turn->role, "content",
                              turn->content));
    }
    *context_out = json_pack(
            "{s:o, s:s, s:s, s:n, s:b, s:s}", "messages", list, "bos_token",
            chat.bos_token ? chat.bos_token : "", "eos_token",
            chat.eos_token ? chat.eos_token : "", "tools",
            "add_generation_prompt", 0, "strftime_now", "2026-01-01");
    chat_render(&recipe, messages, (size_t)count, &document);
    char *text = zd_must(
            strndup(document.text ? document.text : "", document.bytes));
    document_fini(&document);
    return text;
}

static enum zd_status fail_over(
        const struct tokenizer_chat *chat, const char *why)
{
    ZD_FAIL(ZD_ERR_DATA, "E0414", "the model's chat template %s", why);
    zd_fail_where("%s", chat->path);
    zd_fail_help(
            "no chat template needs as much: the file is broken or hostile");
    return ZD_ERR_DATA;
}

/* Compare without BOS, which either side may have added. */
static bool is_same(
        const struct jinja_output *out, const char *ours, const char *bos)
{
    size_t length = bos ? strlen(bos) : 0;
    const char *theirs = out->text;
    if (length && strncmp(theirs, bos, length) == 0)
        theirs += length;
    if (length && strncmp(ours, bos, length) == 0)
        ours += length;
    size_t bytes = strlen(ours);
    return (size_t)(out->text + out->bytes - theirs) == bytes &&
           memcmp(theirs, ours, bytes) == 0;
}

/* One of the cases. `is_other_out`: it makes other text than ours. */
static enum jinja_result compare_case(
        const struct jinja_template *template, enum chat_template ours,
        const struct tokenizer *tokenizer, int i, bool *is_other_out, char *why,
        size_t why_bytes)
{
    json_t *context;
    struct jinja_output theirs = {0};
    char *text = render_ours(
            ours, tokenizer, cases[i].first, cases[i].count, &context);
    enum jinja_result result =
            jinja_render(template, context, &theirs, why, why_bytes);
    *is_other_out =
            result == JINJA_DONE &&
            !is_same(&theirs, text, tokenizer_chat(tokenizer).bos_token);
    jinja_output_fini(&theirs);
    json_decref(context);
    free(text);
    return result;
}

enum zd_status chat_template_compare(
        enum chat_template ours, const struct tokenizer *tokenizer)
{
    struct tokenizer_chat chat = tokenizer_chat(tokenizer);
    struct jinja_template *template = NULL;
    char why[200];
    enum jinja_result result =
            chat.source ? jinja_parse(chat.source, &template, why, sizeof why)
                        : JINJA_DONE;
    for (int i = 0; chat.source && i < 3; i++) {
        bool is_other = false;
        if (template)
            result = compare_case(
                    template, ours, tokenizer, i, &is_other, why, sizeof why);
        if (result == JINJA_OVER)
            break;
        if (result == JINJA_UNKNOWN || result == JINJA_FAILED) {
            zd_log_warning(
                    "the model's own chat_template cannot be compared with "
                    "data.chat_template = \"%s\": %s is not read here",
                    chat_template_name(ours), why);
            break;
        }
        if (result == JINJA_DONE && !is_other)
            continue;
        if (is_other)
            zd_log_warning(
                    "data.chat_template = \"%s\" renders %s differently from "
                    "the model's own chat_template; `zerod data inspect` shows "
                    "them",
                    chat_template_name(ours), cases[i].what);
        else
            zd_log_warning(
                    "the model's own chat_template refuses %s (%s); "
                    "data.chat_template = \"%s\" renders them: `zerod data "
                    "inspect` shows them",
                    cases[i].what, why, chat_template_name(ours));
        if (i == 0)
            break; /* then of all */
    }
    jinja_free(template);
    return result == JINJA_OVER ? fail_over(&chat, why) : ZD_OK;
}
