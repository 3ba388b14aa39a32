/* Conversations by chat templates: what is trained, and that what a renderer
 * keeps of earlier conversations changes nothing. */
#include "tests/data/data_case.h"

#include <criterion/criterion.h>

enum { TEXT_MAX = 1 << 16 };

/* --- templates: of data/templates, and those of a fixture ----------------- */

struct template
{
    const char *name, *end; /* what ends an assistant's turn */
};
static const struct template templates[] = {
        {"chatml", "<|im_end|>"},
        {"qwen", "<|im_end|>"},
        {"llama3", "<|eot_id|>"},
        {"mistral", "</s>"},
        {"none", ""},
        {"fixture chatml", "<|im_end|>"},
        {"fixture a system of its own", "</assistant>"},
        {"fixture turns that alternate", "]"},
        {"fixture tools, calls and thoughts", "<end>"},
};

static void without(char *text, const char *part)
{
    for (char *at; (at = strstr(text, part));)
        memmove(at, at + strlen(part), strlen(at + strlen(part)) + 1);
}

/* `is_bare`: without {% generation %}. */
static struct chat *open_chat(
        struct data_case *test, const struct template *template, bool is_bare)
{
    char *source = NULL, path[PATH_MAX];
    size_t bytes;
    struct chat *chat = NULL;
    if (strncmp(template->name, "fixture ", 8) == 0) {
        json_t *file;
        cr_assert_eq(
                json_parse_file(
                        ZD_FIXTURES "/chat_templates.json", 1 << 24, &file),
                ZD_OK);
        JSON_EACH(row, json_object_get(file, "templates")) {
            if (strcmp(json_string_at(row, "name"), template->name + 8) == 0)
                source = strdup(json_string_at(row, "template"));
        }
        json_decref(file);
    } else {
        snprintf(
                path, sizeof path, ZD_SOURCE "/data/templates/%s.jinja",
                template->name);
        fs_read_file(path, TEXT_MAX, &source, &bytes);
    }
    cr_assert_not_null(source, "%s", template->name);
    if (is_bare) {
        without(source, "{%- generation %}");
        without(source, "{%- endgeneration %}");
    }
    data_case_text(test, "t.jinja", source);
    const struct chat_choice choice = {.name = CHAT_FILE, .path = test->path};
    cr_assert_eq(
            chat_create(&choice, test->tokenizer, true, &chat), ZD_OK, "%s",
            zd_error_get()->what);
    free(source);
    return chat;
}

/* --- conversations -------------------------------------------------------- */

static const char *const orders[] = {"ua",   "sua",   "uaua", "suauaua",
                                     "suta", "uatta", "uuaa", "sa"};

/* A text of words, W3_0; and W3_1; in message 3, in the manner of
 * `kind`. */
static void write_text(char *out, size_t message, unsigned kind)
{
    static const char *const forms[] = {
            "W%zu_0;",
            "  W%zu_0; and W%zu_1;\n",
            "<think>\nW%zu_0;\n</think>\n\nW%zu_1;",
            "W%zu_0;\n\n\"W%zu_1;\" \\ \xc3\xa9",
            "a</think>W%zu_0;<think>W%zu_1; /no_think",
            "W%zu_0; < W%zu_1;<",
            ">W%zu_0;</thinW%zu_1;k>",
            "\tW%zu_0;<|im_end|>W%zu_1;\n ",
            "think>W%zu_0;\xf3\xb0\x80\x80\xf4\x80\x80\x81W%zu_1;",
    };
    sprintf(out, forms[kind % COUNT(forms)], message, message);
}

static void make_talk(
        struct conversation *talk, const char *order, unsigned kind,
        unsigned masked)
{
    static const char letters[] = "suat";
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    *talk = (struct conversation){0};
    for (size_t i = 0; order[i]; i++) {
        char text[200];
        int which = (int)(strchr(letters, order[i]) - letters);
        write_text(text, i, kind * 7 + (unsigned)i * (kind % 3));
        conversation_add(
                talk,
                json_pack("{s:s, s:s}", "role", roles[which], "content", text),
                masked >> i & 1);
    }
}

/* --- tests ---------------------------------------------------------------- */

static bool is_trained(const struct document *document, size_t at)
{
    for (size_t i = 0; i < document->trained_count; i++)
        if (document->trained[i].begin <= at && at < document->trained[i].end)
            return true;
    return false;
}

/* Every word of a message that is `wanted` is trained, no other is, and each
 * range ends with the end mark. */
static void check_words(
        const struct template *template, const struct conversation *talk,
        const struct document *document, const char *of)
{
    size_t count = json_array_size(talk->messages), wanted = 0;
    for (size_t i = 0; i < count; i++) {
        bool is = talk->turns[i].is_assistant && !talk->turns[i].is_masked;
        wanted += is;
        for (int k = 0; k < 2; k++) {
            char word[16];
            int bytes = snprintf(word, sizeof word, "W%zu_%d;", i, k);
            const char *at = document->text;
            for (; (at = memmem(
                            at, (size_t)(document->text + document->bytes - at),
                            word, (size_t)bytes));
                 at++)
                cr_expect_eq(
                        is_trained(document, (size_t)(at - document->text)), is,
                        "%s, %s: %s in %.*s", template->name, of, word,
                        (int)document->bytes, document->text);
        }
    }
    cr_expect_eq(
            document->trained_count, wanted, "%s, %s: %.*s", template->name, of,
            (int)document->bytes, document->text);
    for (size_t i = 0; i < document->trained_count; i++) {
        size_t end = document->trained[i].end, bytes = strlen(template->end);
        cr_expect(
                end >= bytes && memcmp(document->text + end - bytes,
                                       template->end, bytes) == 0,
                "%s, %s: %.*s", template->name, of, (int)end, document->text);
    }
}

static bool are_equal(const struct document *a, const struct document *b)
{
    bool is = a->bytes == b->bytes && a->trained_count == b->trained_count &&
              memcmp(a->text, b->text, a->bytes) == 0;
    for (size_t i = 0; is && i < a->trained_count; i++)
        is = a->trained[i].begin == b->trained[i].begin &&
             a->trained[i].end == b->trained[i].end;
    return is;
}

/* Renders all conversations with one renderer and each with a fresh one. */
static int compare(struct chat *chat, const struct template *template)
{
    struct chat_renderer kept, fresh;
    struct document a = {0}, b = {0};
    int rendered = 0;
    chat_renderer_init(&kept, chat);
    for (unsigned n = 0; n < 9 * COUNT(orders) * 6; n++) {
        const char *order = orders[n % COUNT(orders)];
        unsigned kind = n / COUNT(orders), masked = n % 5 == 4 ? n : 0;
        enum train_on train_on = n % 7 == 5   ? TRAIN_ON_ALL
                                 : n % 7 == 6 ? TRAIN_ON_LAST
                                              : TRAIN_ON_ASSISTANT;
        struct conversation talk;
        make_talk(&talk, order, kind, masked);
        chat_renderer_init(&fresh, chat);
        enum zd_status status = chat_render(&fresh, &talk, train_on, &a);
        chat_renderer_fini(&fresh);
        cr_expect_eq(chat_render(&kept, &talk, train_on, &b), status);
        cr_expect(
                status != ZD_OK || are_equal(&a, &b), "%s, %s: %.*s",
                template->name, order, (int)a.bytes, a.text);
        if (status == ZD_OK && train_on == TRAIN_ON_ASSISTANT)
            check_words(template, &talk, &a, order);
        rendered += status == ZD_OK;
        zd_error_clear();
        conversation_fini(&talk);
    }
    chat_renderer_fini(&kept);
    document_fini(&a);
    document_fini(&b);
    return rendered;
}

Test(data_chat, what_is_trained_is_the_assistants_text_with_its_end_mark)
{
    struct data_case test;
    data_case_init(&test, NULL);
    for (size_t i = 0; i < COUNT(templates); i++)
        for (int is_bare = 0; is_bare < 2; is_bare++) {
            struct chat *chat = open_chat(&test, &templates[i], is_bare);
            int rendered = compare(chat, &templates[i]);
            cr_expect_geq(rendered, 50, "%s: %d", templates[i].name, rendered);
            chat_destroy(chat);
        }
    data_case_fini(&test);
}

/* What takes more than its budget ends: here each turn, of which there is no
 * word in the text, is looked for in renderings of all turns before it. */
Test(data_chat, a_long_conversation_takes_its_budget_at_most)
{
    static const struct {
        int turns;
        const char *answer;
        bool calls;       /* what the template ignores */
        const char *code; /* NULL: it is rendered */
    } rows[] = {
            {100000, "Ho", false, NULL},
            {100000, "", false, NULL},
            {300, "", true, NULL},
            {20000, "", true, "E0414"}};
    struct data_case test;
    data_case_init(&test, NULL);
    struct chat *chat = open_chat(&test, &templates[5], true);
    for (size_t r = 0; r < COUNT(rows); r++) {
        struct conversation talk = {0};
        struct chat_renderer renderer;
        struct document document = {0};
        const char *code = rows[r].code;
#ifdef __SANITIZE_ADDRESS__
        if (code) /* a whole budget takes a minute there */
            continue;
#endif
        for (int i = 0; i < rows[r].turns; i++) {
            json_t *message = json_pack(
                    "{s:s, s:s}", "role", i % 2 ? "assistant" : "user",
                    "content", i % 2 ? rows[r].answer : "Hi");
            if (i % 2 && rows[r].calls)
                json_object_set_new(message, "tool_calls", json_pack("[{}]"));
            conversation_add(&talk, message, false);
        }
        chat_renderer_init(&renderer, chat);
        enum zd_status status =
                chat_render(&renderer, &talk, TRAIN_ON_ASSISTANT, &document);
        cr_expect_eq(status, code ? ZD_ERR_DATA : ZD_OK, "%zu", r);
        cr_expect_str_eq(zd_error_get()->code, code ? code : "");
        cr_expect(code || document.trained_count == (size_t)rows[r].turns / 2);
        zd_error_clear();
        chat_renderer_fini(&renderer);
        document_fini(&document);
        conversation_fini(&talk);
    }
    chat_destroy(chat);
    data_case_fini(&test);
}
