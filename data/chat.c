#include "data/chat.h"

#include "base/embedded.h"
#include "base/file/fs.h"
#include "base/must.h"

#include <ctype.h>
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

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool has_word(const char *source, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = source; (at = strstr(at, word)); at += bytes)
        if ((at == source || !is_letter(at[-1])) && !is_letter(at[bytes]))
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
        ZD_BAD("E0414", "the chat template %s", why);
    else
        ZD_BAD("E0416", "the chat template cannot be used: %s", why);
    return zd_fail_where("%s", path);
}

static void set_digest(struct chat *chat, const struct tokenizer_chat *from)
{
    struct hasher *hasher = hasher_create();
    ZD_FREED char *variables =
            zd_must(json_dumps(chat->variables, JSON_COMPACT));
    hasher_string(hasher, "chat 2");
    hasher_string(hasher, from->source);
    hasher_string(hasher, from->with_tools ? from->with_tools : "");
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
        const struct tokenizer_chat *from, const char *date, struct chat **out)
{
    static const char now[] = "strftime_now";
    const char *tools = from->with_tools;
    struct chat *chat = zd_array(1, sizeof *chat);
    char today[CHAT_DATE_BYTES];
    chat_today(today);
    chat->name = zd_must(strdup(from->path));
    chat->ignored = ignored_keys(from->source);
    chat->ignored_with_tools = tools ? ignored_keys(tools) : chat->ignored;
    chat->variables = from->tokens ? zd_must(json_deep_copy(from->tokens))
                                   : json_object();
    if (strstr(from->source, now) || (tools && strstr(tools, now)))
        json_object_set_new(
                chat->variables, now, json_string(date ? date : today));
    set_digest(chat, from);
    if (parse(from->source, chat->name, &chat->template) != ZD_OK ||
        (tools && parse(tools, chat->name, &chat->with_tools) != ZD_OK)) {
        chat_destroy(chat);
        return zd_error_get()->status;
    }
    chat->has_tags = jinja_has_generation(chat->template) ||
                     (tools && jinja_has_generation(chat->with_tools));
    *out = chat;
    return ZD_OK;
}

static enum zd_status read_template(const char *path, char **source_out)
{
    size_t bytes;
    ZD_TRY(fs_read_file(path, TEMPLATE_FILE_MAX, source_out, &bytes));
    if (strlen(*source_out) == bytes)
        return ZD_OK;
    ZD_BAD("E0416",
           "the chat template cannot be used: a NUL is at byte offset %zu",
           strlen(*source_out));
    return zd_fail_where("%s", path);
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
    struct tokenizer_chat from = tokenizer_facts(tokenizer)->chat;
    ZD_FREED char *text = NULL;
    enum chat_template name = choice->name;
    bool is_own = name == CHAT_AUTO && from.source;
    *out = NULL;
    if (name == CHAT_AUTO)
        name = layout_by_markers(tokenizer);
    if (name == CHAT_FILE) {
        ZD_TRY(read_template(choice->path, &text));
        from = (struct tokenizer_chat){text, NULL, choice->path, from.tokens};
    } else if (!is_own && name == CHAT_AUTO) {
        return must ? chat_fail_none(tokenizer, ZD_ERR_CONFIG) : ZD_OK;
    } else if (!is_own) {
        const char *layout = layouts[name].name;
        from = (struct tokenizer_chat){
                embedded_find(chat_templates, layout).text, NULL, layout,
                from.tokens};
    }
    ZD_TRY(create(&from, choice->date, out));
    (*out)->is_own = is_own;
    (*out)->is_layout = !is_own && name != CHAT_FILE;
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
