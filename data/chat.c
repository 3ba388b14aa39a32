/* chat.c - the layouts that conversations are written in, and writing them. */
#include "data/document.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

#include <string.h>

/* A turn is  begin ROLE after_role before_content CONTENT end after_turn.
 * Begin, after_role, end and bos are markers, the others text; NULL: nothing.
 */
struct chat_layout {
    const char *name;
    const char *markers[3]; /* `auto` takes the last layout whose markers the
                               tokenizer has; none: it never takes it */
    const char *bos;        /* before the first turn */
    const char *system;     /* first, unless a system message is */
    const char *begin;      /* NULL: the role is not written either */
    const char *after_role, *before_content;
    bool trims; /* white space around the content */
    const char *end, *after_turn;
};

static const struct chat_layout layouts[] = {
#define LAYOUT(value, word, note, help, ...)                                   \
    [value] = {.name = word, __VA_ARGS__},
#include "data/layouts.inc"
#undef LAYOUT
};

static bool has_markers(
        const struct tokenizer *tokenizer, const struct chat_layout *layout)
{
    for (int i = 0; i < 3 && layout->markers[i]; i++)
        if (tokenizer_token_id(tokenizer, layout->markers[i]) < 0)
            return false;
    return layout->markers[0] != NULL;
}

enum zd_status chat_template_resolve(
        enum chat_template wanted, const struct tokenizer *tokenizer,
        enum chat_template *template_out)
{
    int found = (int)wanted;
    if (wanted == CHAT_AUTO)
        for (int i = 0; i < (int)(sizeof layouts / sizeof layouts[0]); i++)
            if (has_markers(tokenizer, &layouts[i]))
                found = i;
    *template_out = (enum chat_template)found;
    if (found != CHAT_AUTO)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0434",
            "data.chat_template = \"auto\", but the tokenizer (%s) has the "
            "markers of no template",
            tokenizer_describe(tokenizer));
    zd_fail_help("set data.chat_template to chatml, llama3, qwen or none");
    return ZD_ERR_CONFIG;
}

enum zd_status chat_recipe_resolve(
        enum chat_template wanted, struct recipe *recipe)
{
    int count, bos = tokenizer_token_id(recipe->tokenizer, "<|begin_of_text|>");
    const int32_t *prefix = tokenizer_prefix(recipe->tokenizer, &count);
    recipe->chat_bos = count == 0 || prefix[0] != bos;
    return chat_template_resolve(
            wanted, recipe->tokenizer, &recipe->chat_template);
}

const char *chat_template_name(enum chat_template chat_template)
{
    return layouts[chat_template].name;
}

/* NULL: nothing. */
static void add_marker(
        struct document *document, const char *marker, bool train)
{
    document_add(
            document, marker, marker ? strlen(marker) : 0, ENCODE_ADDED_TOKENS,
            train);
}

static void add_text(struct document *document, const char *text, bool train)
{
    document_add(document, text, text ? strlen(text) : 0, 0, train);
}

static void open_turn(
        const struct chat_layout *layout, const char *role, bool train,
        struct document *document)
{
    if (!layout->begin)
        return;
    add_marker(document, layout->begin, train);
    add_text(document, role, train);
    add_marker(document, layout->after_role, train);
    add_text(document, layout->before_content, train);
}

/* White space as Python's str.strip knows it. */
static bool is_space(uint32_t c)
{
    bool is = c >= 0x1c && c <= 0x1f;
    for (int r = 0; r < unicode_spaces.count; r++)
        is |= c >= unicode_spaces.ranges[r].begin &&
              c <= unicode_spaces.ranges[r].end;
    return is;
}

static void trim(const unsigned char **text, size_t *bytes)
{
    unsigned step;
    while (*bytes && is_space(utf8_read(*text, &step))) {
        *text += step;
        *bytes -= step;
    }
    while (*bytes) {
        size_t last = utf8_before(*text, *bytes);
        if (!is_space(utf8_read(*text + last, &step)))
            break;
        *bytes = last;
    }
}

static void render_message(
        const struct recipe *recipe, const struct chat_message *message,
        struct document *document)
{
    const struct chat_layout *layout = &layouts[recipe->chat_template];
    /* what surrounds the content, except its end mark */
    bool all = recipe->train_on == TRAIN_ON_ALL && !message->is_masked;
    bool train = all || (!message->is_masked &&
                         strcmp(message->role, "assistant") == 0);
    const unsigned char *content = (const unsigned char *)message->content;
    size_t bytes = message->content_bytes;
    if (layout->trims)
        trim(&content, &bytes);
    open_turn(layout, message->role, all, document);
    document_add(document, (const char *)content, bytes, 0, train);
    add_marker(document, layout->end, train);
    add_text(document, layout->after_turn, all);
}

void chat_render(
        const struct recipe *recipe, const struct chat_message *messages,
        size_t count, struct document *document)
{
    const struct chat_layout *layout = &layouts[recipe->chat_template];
    if (recipe->chat_bos)
        add_marker(document, layout->bos, recipe->train_on == TRAIN_ON_ALL);
    if (layout->system && count > 0 &&
        strcmp(messages[0].role, "system") != 0) {
        struct chat_message system = {
                "system", layout->system, strlen(layout->system), false};
        render_message(recipe, &system, document);
    }
    for (size_t i = 0; i < count; i++)
        render_message(recipe, &messages[i], document);
}

void chat_render_prompt(
        const struct recipe *recipe, const char *content,
        struct document *document, int32_t *end_out)
{
    const struct chat_layout *layout = &layouts[recipe->chat_template];
    struct chat_message user = {"user", content, strlen(content), false};
    *end_out = tokenizer_token_id(recipe->tokenizer, layout->end);
    chat_render(recipe, &user, 1, document);
    open_turn(layout, "assistant", false, document);
}
