#include "data/chat.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEMPLATE_FILE_MAX = 1 << 20 };

/* --- which template ------------------------------------------------------- */

struct layout {
    const char *name, *markers[3];
};

static const struct layout layouts[] = {
#define LAYOUT(value, word, marks, help) [value] = {word, marks},
#include "data/layouts.inc"
#undef LAYOUT
};

enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

extern const char chat_templates[]; /* templates.S */

static const char *layout_source(const char *name)
{
    for (const char *at = chat_templates; *at;) {
        const char *text = at + strlen(at) + 1;
        if (strcmp(at, name) == 0)
            return text;
        at = text + strlen(text) + 1;
    }
    return NULL;
}

/* CHAT_AUTO: none. */
static enum chat_template layout_by_markers(const struct tokenizer *tokenizer)
{
    enum chat_template found = CHAT_AUTO;
    for (int n = 0; n < LAYOUTS; n++) {
        const char *const *markers = layouts[n].markers;
        bool has = markers[0] != NULL;
        for (int i = 0; i < 3 && markers[i]; i++)
            has &= tokenizer_token_id(tokenizer, markers[i]) >= 0;
        if (has)
            found = (enum chat_template)n;
    }
    return found;
}

/* --- made ----------------------------------------------------------------- */

static bool has_word(const char *source, const char *word)
{
    static const char letters[] =
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    size_t bytes = strlen(word);
    for (const char *at = source; (at = strstr(at, word)); at += bytes)
        if ((at == source || !strchr(letters, at[-1])) &&
            (!at[bytes] || !strchr(letters, at[bytes])))
            return true;
    return false;
}

/* Bits of enum row_note, for keys that a template never names. */
static unsigned ignored_keys(const char *source)
{
    bool thinks = has_word(source, "reasoning_content") ||
                  has_word(source, "thinking") || has_word(source, "reasoning");
    return !has_word(source, "tools") << ROW_TOOLS |
           !has_word(source, "tool_calls") << ROW_CALLS |
           !thinks << ROW_THOUGHTS | !has_word(source, "text") << ROW_PARTS;
}

static enum zd_status parse(
        const char *source, const char *path, struct jinja_template **out)
{
    char why[300];
    enum jinja_result result = jinja_parse(source, out, why, sizeof why);
    if (result == JINJA_DONE)
        return ZD_OK;
    if (result == JINJA_OVER)
        ZD_FAIL(ZD_ERR_DATA, "E0414", "the chat template %s", why);
    else
        ZD_FAIL(ZD_ERR_DATA, "E0416", "the chat template cannot be used: %s",
                why);
    return zd_fail_where("%s", path);
}

static void set_digest(
        struct chat *chat, const char *source, const char *with_tools)
{
    struct hasher *hasher = hasher_create();
    ZD_FREED char *variables =
            zd_must(json_dumps(chat->variables, JSON_COMPACT));
    hasher_string(hasher, "chat 2");
    hasher_string(hasher, source);
    hasher_string(hasher, with_tools ? with_tools : "");
    hasher_string(hasher, variables);
    hasher_finish(hasher, chat->digest);
}

void chat_today(char date[CHAT_DATE_BYTES])
{
    time_t now = time(NULL);
    struct tm parts = {0};
    localtime_r(&now, &parts);
    strftime(date, CHAT_DATE_BYTES, "%Y-%m-%d", &parts);
}

/* From its text. The date is a variable only where the template asks for it, so
 * that no other's text depends on the day. */
static enum zd_status create(
        const char *name, const char *source, const char *with_tools,
        const struct tokenizer *tokenizer, const char *date, struct chat **out)
{
    static const char now[] = "strftime_now";
    struct tokenizer_chat config = tokenizer_facts(tokenizer)->chat;
    struct chat *chat = zd_array(1, sizeof *chat);
    char today[CHAT_DATE_BYTES];
    chat_today(today);
    chat->name = zd_must(strdup(name));
    chat->ignored = ignored_keys(source);
    chat->ignored_with_tools =
            with_tools ? ignored_keys(with_tools) : chat->ignored;
    chat->variables = config.tokens ? zd_must(json_deep_copy(config.tokens))
                                    : json_object();
    if (strstr(source, now) || (with_tools && strstr(with_tools, now)))
        json_object_set_new(
                chat->variables, now, json_string(date ? date : today));
    set_digest(chat, source, with_tools);
    enum zd_status status = parse(source, name, &chat->template);
    if (status == ZD_OK && with_tools)
        status = parse(with_tools, name, &chat->with_tools);
    if (status != ZD_OK) {
        chat_destroy(chat);
        return status;
    }
    chat->has_tags = jinja_has_generation(chat->template) ||
                     (with_tools && jinja_has_generation(chat->with_tools));
    *out = chat;
    return ZD_OK;
}

static enum zd_status create_of_file(
        const struct chat_choice *choice, const struct tokenizer *tokenizer,
        struct chat **out)
{
    ZD_FREED char *source = NULL;
    size_t bytes;
    ZD_TRY(fs_read_file(choice->path, TEMPLATE_FILE_MAX, &source, &bytes));
    if (strlen(source) == bytes)
        return create(choice->path, source, NULL, tokenizer, choice->date, out);
    ZD_FAIL(ZD_ERR_DATA, "E0416",
            "the chat template cannot be used: a NUL is at byte offset %zu",
            strlen(source));
    return zd_fail_where("%s", choice->path);
}

enum zd_status chat_fail_none(
        const struct tokenizer *tokenizer, enum zd_status status)
{
    ZD_FAIL(status, "E0434",
            "data.chat_template = \"auto\", but the model has no chat "
            "template, and its tokenizer (%s) has the markers of none",
            tokenizer_facts(tokenizer)->describe);
    return zd_fail_help(
            "set data.chat_template to chatml, llama3, qwen, mistral, "
            "none or the path of a template");
}

enum zd_status chat_create(
        const struct chat_choice *choice, const struct tokenizer *tokenizer,
        bool must, struct chat **out)
{
    struct tokenizer_chat own = tokenizer_facts(tokenizer)->chat;
    enum chat_template name = choice->name;
    *out = NULL;
    if (name == CHAT_FILE)
        return create_of_file(choice, tokenizer, out);
    if (name == CHAT_AUTO && own.source) {
        ZD_TRY(
                create(own.path, own.source, own.with_tools, tokenizer,
                       choice->date, out));
        (*out)->is_own = true;
        return ZD_OK;
    }
    if (name == CHAT_AUTO)
        name = layout_by_markers(tokenizer);
    if (name == CHAT_AUTO)
        return must ? chat_fail_none(tokenizer, ZD_ERR_CONFIG) : ZD_OK;
    ZD_TRY(
            create(layouts[name].name, layout_source(layouts[name].name), NULL,
                   tokenizer, NULL, out));
    (*out)->is_layout = true;
    return ZD_OK;
}

void chat_destroy(struct chat *chat)
{
    if (!chat)
        return;
    jinja_free(chat->template);
    jinja_free(chat->with_tools);
    json_decref(chat->variables);
    free(chat->name);
    free(chat);
}

void recipe_fini(struct recipe *recipe)
{
    chat_destroy(recipe->chat);
}

/* --- conversations -------------------------------------------------------- */

void conversation_fini(struct conversation *conversation)
{
    json_decref(conversation->messages);
    json_decref(conversation->tools);
    json_decref(conversation->documents);
    free(conversation->turns);
    memset(conversation, 0, sizeof *conversation);
}

void conversation_add(
        struct conversation *conversation, json_t *message, bool is_masked)
{
    if (!conversation->messages)
        conversation->messages = json_array();
    size_t count = json_array_size(conversation->messages);
    const char *role = json_string_at(message, "role");
    ZD_GROW(conversation->turns, conversation->capacity, count + 1);
    conversation->turns[count] =
            (struct turn){role && strcmp(role, "assistant") == 0, is_masked};
    json_array_append_new(conversation->messages, message);
}
