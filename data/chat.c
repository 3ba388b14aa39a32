#include "data/chat.h"

#include "base/embedded.h"
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "base/text_buffer.h"
#include "data/chat_skeleton.h"
#include "data/format.h"

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

/* --- a conversation as a document: its text, and what of it is trained -----
 */

void chat_renderer_init(struct chat_renderer *renderer, const struct chat *chat)
{
    memset(renderer, 0, sizeof *renderer);
    if (!chat)
        return;
    renderer->chat = chat;
    renderer->context = zd_must(json_deep_copy(chat->variables));
    renderer->memory = zd_array(1, sizeof *renderer->memory);
}

void chat_renderer_fini(struct chat_renderer *renderer)
{
    json_decref(renderer->context);
    jinja_output_fini(&renderer->text);
    chat_memory_destroy(renderer->memory);
    memset(renderer, 0, sizeof *renderer);
}

/* Messages whose ranges are looked for: those that are trained or, where
 * everything else is, those that are not. False: there are none. */
static bool choose(struct chat_renderer *renderer, enum train_on train_on)
{
    struct chat_memory *memory = renderer->memory;
    const struct conversation *talk = renderer->talk;
    size_t count = json_array_size(talk->messages), last = count;
    bool has_any = false;
    memory->is_whole = train_on == TRAIN_ON_ALL;
    ZD_GROW(memory->wanted, memory->wanted_capacity, count + 1);
    for (size_t i = count; i-- > 0;) {
        const struct turn *turn = &talk->turns[i];
        last = turn->is_assistant && last == count ? i : last;
        memory->wanted[i] =
                memory->is_whole
                        ? turn->is_masked
                        : turn->is_assistant && !turn->is_masked &&
                                  (train_on != TRAIN_ON_LAST || i == last);
        has_any |= memory->wanted[i];
    }
    return has_any;
}

/* The ranges that the template marks, where each is of one message or all are
 * trained, in the shape. */
static bool take_tags(
        const struct chat_renderer *renderer, const struct jinja_output *text,
        struct shape *shape)
{
    const struct turn *turns = renderer->talk->turns;
    const bool *wanted = renderer->memory->wanted;
    size_t count = json_array_size(renderer->talk->messages);
    size_t assistants = 0, message = 0;
    bool wants_all = true;
    for (size_t i = 0; i < count; i++) {
        assistants += turns[i].is_assistant;
        wants_all &= wanted[i] || !turns[i].is_assistant;
    }
    if (!wants_all && assistants != text->span_count)
        return false;
    for (size_t i = 0; i < text->span_count; i++) {
        while (!wants_all && !turns[message].is_assistant)
            message++;
        if (wants_all || wanted[message++])
            shape_train(shape, text->spans[i].begin, text->spans[i].end);
    }
    return true;
}

/* Keep the shape of a conversation whose ranges need no search. One that has
 * other ranges is kept as one of no use. */
static void remember(
        struct chat_renderer *renderer, bool has_tags,
        const struct document *document)
{
    struct skeleton s = {.renderer = renderer};
    struct document again = {0};
    if (renderer->memory->key_bytes > SHAPE_BYTES)
        return;
    skeleton_make(&s, MARKS_ALL);
    if (s.status != ZD_OK)
        zd_error_clear();
    if (s.is_sound && has_tags)
        take_tags(renderer, &s.shape.text, &s.shape);
    if (s.is_sound)
        shape_apply(&s.shape, &again);
    s.shape.watch.depends |=
            !s.is_sound || again.trained_count != document->trained_count ||
            (again.trained_count > 0 &&
             memcmp(again.trained, document->trained,
                    again.trained_count * sizeof *again.trained) != 0);
    chat_keep_shape(renderer->memory, &s.shape);
    skeleton_fini(&s);
    document_fini(&again);
}

/* `known`: the shape of its key, where there was one. */
static enum zd_status render_whole(
        struct chat_renderer *renderer, bool has_any, struct shape *known,
        struct document *document)
{
    bool may_have_tags = has_any && renderer->chat->has_tags;
    struct shape tagged = {0};
    ZD_TRY(chat_render_text(renderer, NULL, false, &renderer->text));
    document_append(document, renderer->text.text, renderer->text.bytes);
    bool has_tags = may_have_tags && !renderer->memory->is_whole &&
                    take_tags(renderer, &renderer->text, &tagged);
    shape_apply(&tagged, document);
    shape_fini(&tagged);
    if (has_any && !has_tags)
        return chat_find_spans(
                renderer, may_have_tags ? NULL : known, document);
    if (!known)
        remember(renderer, has_tags, document);
    return ZD_OK;
}

/* Everything but the ranges, in place. */
static void train_others(struct document *document)
{
    size_t from = 0;
    for (size_t i = 0; i < document->trained_count; i++) {
        struct text_range *range = &document->trained[i];
        size_t end = range->end;
        *range = (struct text_range){from, range->begin};
        from = end;
    }
    document_train(document, from, document->bytes);
}

/* Has a message something under the key; `as_parts`: a list? */
static bool have(const json_t *messages, const char *key, bool as_parts)
{
    bool has = false;
    JSON_EACH(message, messages) {
        const json_t *value = json_object_get(message, key);
        has |= as_parts ? json_is_array(value) : !record_is_empty(value);
    }
    return has;
}

/* What the conversation has and the template does not read. */
static unsigned find_ignored(const struct chat_renderer *renderer)
{
    const json_t *messages = renderer->talk->messages;
    bool has_tools = renderer->talk->tools != NULL;
    unsigned ignored = has_tools ? renderer->chat->ignored_with_tools
                                 : renderer->chat->ignored;
    unsigned found = (unsigned)has_tools << ROW_TOOLS;
    if (ignored >> ROW_CALLS & 1)
        found |= (unsigned)have(messages, "tool_calls", false) << ROW_CALLS;
    if (ignored >> ROW_THOUGHTS & 1)
        found |= (unsigned)have(messages, "thinking", false) << ROW_THOUGHTS;
    if (ignored >> ROW_PARTS & 1)
        found |= (unsigned)have(messages, "content", true) << ROW_PARTS;
    return found & ignored;
}

enum zd_status chat_render(
        struct chat_renderer *renderer, const struct conversation *conversation,
        enum train_on train_on, struct document *document)
{
    struct chat_memory *memory = renderer->memory;
    renderer->talk = conversation;
    bool has_any = choose(renderer, train_on);
    chat_write_key(renderer, MARKS_ALL);
    struct shape *known = chat_find_shape(memory);
    document_clear(document);
    if (known && shape_fill(known, memory, document)) {
        shape_apply(known, document);
        document->ignored = known->ignored;
    } else {
        document->ignored = memory->ignored = find_ignored(renderer);
        ZD_TRY(render_whole(renderer, has_any, known, document));
    }
    if (memory->is_whole)
        train_others(document);
    document->is_chat = true;
    document->adds_prefix = renderer->chat->is_layout;
    return ZD_OK;
}

enum zd_status chat_render_prompt(
        struct chat_renderer *renderer, const char *content, const char *answer,
        struct document *document)
{
    static const char *const roles[] = {"user", "assistant"};
    const char *const contents[] = {content, answer};
    ZD_SCOPED(conversation_fini) struct conversation talk = {0};
    for (int i = 0; i < 2 && contents[i]; i++)
        conversation_add(
                &talk,
                json_pack(
                        "{s:s, s:s}", "role", roles[i], "content", contents[i]),
                false);
    renderer->talk = &talk;
    if (answer)
        return chat_render(renderer, &talk, TRAIN_ON_LAST, document);
    ZD_TRY(chat_render_text(renderer, NULL, true, &renderer->text));
    document_clear(document);
    document_append(document, renderer->text.text, renderer->text.bytes);
    document->is_chat = true;
    document->adds_prefix = renderer->chat->is_layout;
    return ZD_OK;
}

/* --- which template renders, and how it differs from the model's own ------ */

/* A question and its answer, after a system message or not. */
static bool renders_as(
        const struct chat *chat, const struct chat *own, bool has_system)
{
    struct chat_renderer a, b;
    struct conversation talk = {
            .messages = json_pack(
                    "[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "role", "system",
                    "content", "Be brief.", "role", "user", "content",
                    "What is 2 + 2?", "role", "assistant", "content", "Four.")};
    if (!has_system)
        json_array_remove(talk.messages, 0);
    chat_renderer_init(&a, chat);
    chat_renderer_init(&b, own);
    a.talk = b.talk = &talk;
    bool is_same = chat_render_text(&a, NULL, false, &a.text) == ZD_OK &&
                   chat_render_text(&b, NULL, false, &b.text) == ZD_OK;
    const char *bos = json_string_at(own->variables, "bos_token");
    size_t skip = bos ? strlen(bos) : 0;
    if (is_same && (!bos || strncmp(b.text.text, bos, skip) != 0 ||
                    strncmp(a.text.text, bos, skip) == 0))
        skip = 0;
    is_same = is_same && a.text.bytes + skip == b.text.bytes &&
              memcmp(a.text.text, b.text.text + skip, a.text.bytes) == 0;
    zd_error_clear();
    chat_renderer_fini(&a);
    chat_renderer_fini(&b);
    conversation_fini(&talk);
    return is_same;
}

/* Markers like <|im_start|> that are no tokens of the tokenizer. */
static void tell_markers(
        const struct chat *chat, const struct tokenizer *tokenizer)
{
    char marker[64];
    struct text_buffer lacks = TEXT_BUFFER(300);
    struct document document = {0};
    struct chat_renderer renderer;
    chat_renderer_init(&renderer, chat);
    chat_render_prompt(&renderer, "x", "x", &document);
    const char *at = document.text, *end = at + document.bytes;
    for (; at && (at = memmem(at, (size_t)(end - at), "<|", 2)); at += 2) {
        size_t left = (size_t)(end - at);
        size_t most = left < sizeof marker - 1 ? left : sizeof marker - 1;
        const char *close = memmem(at, most, "|>", 2);
        ZD_PRINT(marker, "%.*s", close ? (int)(close + 2 - at) : 0, at);
        if (close && !strstr(lacks.out, marker) &&
            tokenizer_token_id(tokenizer, marker) < 0)
            text_buffer_add(&lacks, "%s%s", lacks.used ? ", " : "", marker);
    }
    if (lacks.used)
        zd_log_warning(
                "data.chat_template = \"%s\" writes %s, which the tokenizer "
                "(%s) does not have as tokens: each becomes several, at which "
                "a server does not stop; add them to the tokenizer, or use a "
                "template whose markers it has",
                chat->name, lacks.out, tokenizer_facts(tokenizer)->describe);
    zd_error_clear();
    document_fini(&document);
    chat_renderer_fini(&renderer);
}

void chat_tell(
        const struct chat *chat, const struct tokenizer *tokenizer, bool names)
{
    const struct chat_choice choice = {.name = CHAT_AUTO};
    bool has_own = tokenizer_facts(tokenizer)->chat.source != NULL;
    struct chat *own = NULL;
    if (names)
        zd_log_info(
                "chat template: %s%s%s",
                chat->is_own ? "the model's own, " : "", chat->name,
                chat->is_own || has_own ? "" : "; the model has none");
    if (!chat->is_own)
        tell_markers(chat, tokenizer);
    if (chat->is_own || !has_own)
        return;
    bool is_read = chat_create(&choice, tokenizer, false, &own) == ZD_OK;
    if (!is_read || !renders_as(chat, own, true) ||
        !renders_as(chat, own, false))
        zd_log_warning(
                "data.chat_template = \"%s\" renders conversations differently "
                "from the model's own template (%s), which it will be served "
                "with; data.chat_template = \"auto\" uses that",
                chat->name, tokenizer_facts(tokenizer)->chat.path);
    zd_error_clear();
    chat_destroy(own);
}
