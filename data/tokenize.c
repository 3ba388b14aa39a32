#include "data/tokenize.h"

#include "base/must.h"
#include "data/format.h"
#include "data/stream.h"

#include <string.h>

/* --- units: whole lines of UNIT_BYTES together, or a part of a text. What a
 * unit does not take of the text that was read is kept as `rest` for the next
 * one. */

enum { KEEP_BYTES = 1 << 20 };

void unit_reader_fini(struct unit_reader *r)
{
    data_stream_close(r->stream);
    free(r->rest);
    *r = (struct unit_reader){.list = NULL};
}

static enum zd_status open_next(struct unit_reader *r)
{
    ZD_TRY(data_stream_open(&r->list->files[++r->file], r->most, &r->stream));
    r->offset = 0;
    r->line = 1;
    r->has_ended = r->has_unit = false;
    return ZD_OK;
}

int64_t count_newlines(const char *text, size_t bytes)
{
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += text[i] == '\n';
    return count;
}

/* Whole lines at the beginning of the unit's text. */
static size_t cut_lines(const struct unit *unit)
{
    const char *end = memrchr(unit->text, '\n', unit->bytes);
    return end ? (size_t)(end - unit->text) + 1 : 0;
}

static enum zd_status fail_long(
        const struct unit_reader *r, const struct data_file *file)
{
    if (file->has_lines)
        ZD_BAD("E0440", "%s %lld of %s has more than %zu bytes",
               source_unit(file), (long long)r->line, file->path, r->most);
    else
        ZD_BAD("E0440",
               "%s has more than %zu bytes from byte %llu on without a blank "
               "after a letter or a number, where the tokenizer may cut it",
               file->path, r->most, (unsigned long long)r->offset);
    source_place(file, r->line);
    if (r->most < RECORD_MAX_BYTES)
        zd_fail_help(
                "`zerod data inspect --job JOB --count 0` tokenizes the data "
                "into the cache, of records of up to %d MiB; then start again",
                RECORD_MAX_BYTES >> 20);
    return ZD_ERR_DATA;
}

/* Up to `want` bytes of text and one more, which shows that more follow. */
static enum zd_status fill(
        struct unit_reader *r, struct unit *unit, size_t want)
{
    size_t bytes = 0;
    if (r->has_ended || unit->bytes > want)
        return ZD_OK;
    ZD_GROW(unit->text, unit->capacity, want + 1);
    ZD_TRY(data_stream_read(
            r->stream, unit->text + unit->bytes, want + 1 - unit->bytes,
            &bytes));
    unit->bytes += bytes;
    r->has_ended = unit->bytes <= want;
    return ZD_OK;
}

/* As much as UNIT_BYTES holds, or more where it cannot be cut there, into the
 * unit; *part_out: so much of its text belongs to it. */
static enum zd_status read_text(
        struct unit_reader *r, const struct data_file *file, struct unit *unit,
        size_t *part_out)
{
    for (size_t want = UNIT_BYTES;;) {
        ZD_TRY(fill(r, unit, want));
        *part_out = r->has_ended      ? unit->bytes
                    : file->has_lines ? cut_lines(unit)
                                      : tokenizer_cut(
                                                r->tokenizer, unit->text,
                                                unit->bytes - 1);
        if (*part_out > 0 || r->has_ended)
            return ZD_OK;
        if (unit->bytes > r->most)
            return fail_long(r, file);
        if (unit->bytes >= want)
            want = 2 * want < r->most ? 2 * want : r->most;
    }
}

/* The text after the first `part` bytes of the unit is kept. */
static void keep_rest(
        struct unit_reader *r, const struct unit *unit, size_t part)
{
    size_t rest = unit->bytes - part;
    if (r->rest_capacity > KEEP_BYTES) {
        free(r->rest);
        r->rest = NULL;
        r->rest_capacity = 0;
    }
    if (rest > r->rest_capacity)
        ZD_GROW(r->rest, r->rest_capacity, rest);
    if (rest > 0)
        memcpy(r->rest, unit->text + part, rest);
    r->rest_bytes = rest;
}

/* A byte-order mark at the beginning is no text. */
static void skip_mark(struct unit_reader *r, struct unit *unit, size_t *part)
{
    if (r->offset > 0 || *part < 3 ||
        memcmp(unit->text, "\xef\xbb\xbf", 3) != 0)
        return;
    r->offset = 3;
    unit->bytes -= 3;
    *part -= 3;
    memmove(unit->text, unit->text + 3, unit->bytes);
}

/* A unit of the open file; *has_out false: there is no more. */
static enum zd_status read_unit(
        struct unit_reader *r, struct unit *unit, bool *has_out)
{
    const struct data_file *file = &r->list->files[r->file];
    size_t part;
    /* what was kept is the beginning */
    ZD_GROW(unit->text, unit->capacity, r->rest_bytes + 1);
    unit->bytes = r->rest_bytes;
    memcpy(unit->text, r->rest ? r->rest : "", unit->bytes);
    ZD_TRY(read_text(r, file, unit, &part));
    skip_mark(r, unit, &part);
    *has_out = part > 0;
    if (part == 0 && !r->has_unit)
        return ZD_BAD("E0439", "%s holds no document", file->path);
    bool is_last = r->has_ended && part == unit->bytes;
    keep_rest(r, unit, part);
    unit->file = file;
    unit->offset = r->offset;
    unit->first_line = r->line;
    unit->consumed = data_stream_consumed(r->stream);
    unit->begins = !r->has_unit;
    unit->ends = is_last;
    unit->bytes = part;
    r->has_unit |= part > 0;
    r->offset += part;
    r->line += count_newlines(unit->text, part);
    if (!is_last && part > 0)
        return ZD_OK;
    data_stream_close(r->stream);
    r->stream = NULL;
    return ZD_OK;
}

enum zd_status unit_read(
        struct unit_reader *r, struct unit *unit, bool *more_out)
{
    *more_out = false;
    while (!*more_out) {
        if (!r->stream && r->file + 1 == r->list->count)
            break;
        if (!r->stream)
            ZD_TRY(open_next(r));
        ZD_TRY(read_unit(r, unit, more_out));
    }
    return ZD_OK;
}

/* --- their words ---------------------------------------------------------- */

void tokenize_worker_init(
        struct tokenize_worker *w, const struct recipe *recipe)
{
    memset(w, 0, sizeof *w);
    w->recipe = recipe;
    w->encoder = encoder_create(recipe->tokenizer);
    chat_renderer_init(&w->renderer, recipe->chat);
}

void tokenize_worker_fini(struct tokenize_worker *w)
{
    encoder_destroy(w->encoder);
    chat_renderer_fini(&w->renderer);
    document_fini(&w->document);
    token_vector_fini(&w->words);
    unit_fini(&w->unit);
    free(w->borders);
}

/* Refuse what is not UTF-8 before anything looks at it. */
static enum zd_status check_utf8(
        const struct unit *unit, const char *text, size_t bytes)
{
    size_t valid = utf8_valid_prefix(text, bytes);
    if (valid == bytes)
        return ZD_OK;
    size_t before = (size_t)(text - unit->text) + valid;
    int64_t line = unit->first_line + count_newlines(unit->text, before);
    unsigned long long offset = unit->offset + before;
    ZD_BAD("E0435",
           "%s is not UTF-8: byte 0x%02x in %s %lld, at byte offset "
           "%llu of the %s",
           unit->file->path, (unsigned char)text[valid],
           source_unit(unit->file), (long long)line, offset,
           unit->file->container ? "text in it" : "file");
    return source_place(unit->file, line);
}

static uint32_t *word_at(struct token_vector *words, size_t at)
{
    return (uint32_t *)words->ids + at;
}

static enum zd_status append_text(
        struct tokenize_worker *w, const char *text, size_t bytes,
        bool continues, bool train)
{
    size_t begin = w->words.count;
    if (bytes > 0)
        ZD_TRY(encoder_encode(w->encoder, text, bytes, continues, &w->words));
    for (size_t i = begin; train && i < w->words.count; i++)
        *word_at(&w->words, i) |= WORD_TRAIN;
    return ZD_OK;
}

/* The first word of a document is never a target. */
static void mark_first(struct tokenize_worker *w, size_t begin)
{
    uint32_t *first;
    if (w->words.count == begin)
        return;
    first = word_at(&w->words, begin);
    *first = (*first & ~WORD_TRAIN) | WORD_FIRST;
}

static void append_prefix(struct tokenize_worker *w)
{
    const struct token_vector *prefix =
            &tokenizer_facts(w->recipe->tokenizer)->prefix;
    token_vector_append(&w->words, prefix->ids, prefix->count);
}

static void append_trained(struct tokenize_worker *w, int32_t id)
{
    token_vector_push(&w->words, (int32_t)((uint32_t)id | WORD_TRAIN));
}

/* What the post-processor puts after a text, then the end of text unless that
 * was the last of it. */
static void append_end_of_text(struct tokenize_worker *w)
{
    const struct token_vector *suffix =
            &tokenizer_facts(w->recipe->tokenizer)->suffix;
    int eos = w->recipe->eos;
    for (size_t i = 0; i < suffix->count; i++)
        append_trained(w, suffix->ids[i]);
    bool has_end = suffix->count > 0 && suffix->ids[suffix->count - 1] == eos;
    if (eos >= 0 && !has_end)
        append_trained(w, eos);
}

/* The text as a whole; what its trained ranges touch is trained. */
static enum zd_status tokenize_chat(struct tokenize_worker *w)
{
    const struct document *document = &w->document;
    struct token_vector *words = &w->words;
    size_t count = 2 * document->trained_count, begin = words->count;
    ZD_GROW(w->borders, w->border_capacity, count + 1);
    for (size_t i = 0; i < count; i++)
        w->borders[i] = (struct encode_border){
                .at = i % 2 ? document->trained[i / 2].end
                            : document->trained[i / 2].begin,
                .is_end = i % 2};
    if (document->adds_prefix)
        append_prefix(w);
    size_t first = words->count, twice = 0;
    ZD_TRY(encoder_encode_borders(
            w->encoder, document->text, document->bytes, words, w->borders,
            count));
    /* the text has the prefix itself */
    if (first > begin && words->count - first >= first - begin &&
        memcmp(words->ids + first, words->ids + begin,
               (first - begin) * sizeof *words->ids) == 0) {
        twice = first - begin;
        memmove(words->ids + begin, words->ids + first,
                (words->count - first) * sizeof *words->ids);
        words->count -= twice;
    }
    for (size_t i = 0; i < count; i += 2)
        for (size_t n = w->borders[i].token; n < w->borders[i + 1].token; n++)
            *word_at(words, n - twice) |= WORD_TRAIN;
    mark_first(w, begin);
    return ZD_OK;
}

static enum zd_status tokenize_document(struct tokenize_worker *w)
{
    const struct document *document = &w->document;
    size_t begin = w->words.count, at = 0;
    if (document->is_chat)
        return tokenize_chat(w);
    append_prefix(w);
    ZD_EACH(range, document->trained, document->trained_count) {
        ZD_TRY(append_text(
                w, document->text + at, range->begin - at, at > 0, false));
        ZD_TRY(append_text(
                w, document->text + range->begin, range->end - range->begin,
                range->begin > 0, true));
        at = range->end;
    }
    ZD_TRY(append_text(
            w, document->text + at, document->bytes - at, at > 0, false));
    if (document->end_of_text)
        append_end_of_text(w);
    mark_first(w, begin);
    return ZD_OK;
}

/* A JSON error knows its place in the line; the line's place in the file is
 * known here. */
static enum zd_status place_in_file(const struct tokenize_worker *w)
{
    struct zd_error error = *zd_error_get();
    const char *colon = strrchr(error.where, ':');
    int column = colon ? atoi(colon + 1) : 1;
    char row[ROW_BYTES];
    source_row(w->unit.file, w->line, row, sizeof row);
    ZD_PRINT(error.where, "%s:%d", row, column);
    zd_error_set(&error);
    if (strcmp(source_unit(w->unit.file), "line") == 0)
        zd_fail_help("each line of the file is one JSON object");
    return error.status;
}

static enum zd_status tokenize_line(
        struct tokenize_worker *w, const char *text, size_t bytes)
{
    const struct data_file *file = w->unit.file;
    json_auto_t *record = NULL;
    ZD_TRY(check_utf8(&w->unit, text, bytes));
    if (json_parse_record(text, bytes, file->path, ZD_ERR_DATA, &record) !=
        ZD_OK)
        return place_in_file(w);
    record = columns_apply(w->recipe->entry, record);
    const struct reading reading = {
            w->recipe, &w->renderer, record, &w->document};
    if (format_read(&reading, file->format) != ZD_OK ||
        tokenize_document(w) != ZD_OK)
        return source_place(file, w->line);
    return ZD_OK;
}

/* What is told of a row whose words begin at `begin`. */
static void note_row(struct tokenize_worker *w, size_t begin)
{
    const int64_t specials = w->document.specials;
    unsigned bits = w->document.ignored |
                    (unsigned)(specials > 0) << ROW_SPECIALS |
                    1u << ROW_UNTRAINED;
    char row[ROW_BYTES];
    for (size_t i = begin; i < w->words.count; i++)
        if (*word_at(&w->words, i) & WORD_TRAIN) {
            bits &= ~(1u << ROW_UNTRAINED);
            break;
        }
    if (!bits)
        return;
    source_row(w->unit.file, w->line, row, sizeof row);
    for (int n = 0; n < ROW_NOTES; n++)
        if (bits >> n & 1)
            row_notes_add(
                    &w->notes, (enum row_note)n,
                    n == ROW_SPECIALS ? specials : 1, row);
}

/* After the help of the error itself. */
static void offer_skip(void)
{
    struct zd_error error = *zd_error_get();
    size_t used = strlen(error.help);
    snprintf(
            error.help + used, sizeof error.help - used,
            "%sdata.on_bad_row = \"skip\" leaves bad rows out",
            used ? "\n" : "");
    zd_error_set(&error);
}

static enum zd_status tokenize_lines(struct tokenize_worker *w)
{
    const struct unit *unit = &w->unit;
    const char *text = unit->text, *end = unit->text + unit->bytes, *stop;
    w->line = unit->first_line;
    for (; text < end; text = stop + 1, w->line++) {
        if (*text == '\n') { /* a file may have nothing else */
            stop = text;
            continue;
        }
        stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        size_t before = w->words.count, bytes = (size_t)(stop - text);
        if (json_blanks(text, bytes) == bytes)
            continue;
        enum zd_status status = tokenize_line(w, text, bytes);
        if (status == ZD_ERR_DATA && w->recipe->skips_bad_rows) {
            w->words.count = before;
            row_notes_take_error(&w->notes);
        } else if (status != ZD_OK) {
            if (status == ZD_ERR_DATA)
                offer_skip();
            return status;
        } else {
            note_row(w, before);
        }
    }
    return ZD_OK;
}

/* A part of a text file, which is one document. */
static enum zd_status tokenize_text(struct tokenize_worker *w)
{
    const struct unit *unit = &w->unit;
    size_t begin = w->words.count;
    ZD_TRY(check_utf8(unit, unit->text, unit->bytes));
    if (unit->begins)
        append_prefix(w);
    ZD_TRY(append_text(w, unit->text, unit->bytes, !unit->begins, true));
    if (unit->ends)
        append_end_of_text(w);
    if (unit->begins)
        mark_first(w, begin);
    return ZD_OK;
}

enum zd_status tokenize_unit(struct tokenize_worker *w)
{
    return w->unit.file->has_lines ? tokenize_lines(w) : tokenize_text(w);
}

/* The last trained token of an answer of one letter, unless it is that. */
static int32_t find_turn_end(struct tokenize_worker *w, const char *content)
{
    static const char answer[] = "x";
    const struct tokenizer *tokenizer = w->recipe->tokenizer;
    int32_t found = -1;
    const char *text;
    size_t bytes;
    if (chat_render_prompt(&w->renderer, content, answer, &w->document) ==
                ZD_OK &&
        tokenize_document(w) == ZD_OK)
        for (size_t i = 0; i < w->words.count; i++)
            if (*word_at(&w->words, i) & WORD_TRAIN)
                found = (int32_t)(*word_at(&w->words, i) & WORD_ID);
    bool is_answer =
            found >= 0 &&
            tokenizer_token_bytes(tokenizer, found, &text, &bytes) == ZD_OK &&
            bytes <= 2 && memchr(text, answer[0], bytes);
    w->words.count = 0;
    zd_error_clear();
    return is_answer ? -1 : found;
}

enum zd_status tokenize_chat_prompt(
        const struct tokenizer *tokenizer, const char *content,
        const struct chat_choice *choice, struct token_vector *ids,
        int32_t *end_out)
{
    ZD_SCOPED(recipe_fini)
    struct recipe recipe = {.tokenizer = tokenizer, .eos = -1};
    size_t valid = utf8_valid_prefix(content, strlen(content));
    if (content[valid])
        return ZD_BAD("E0413", "invalid UTF-8 at byte offset %zu", valid);
    ZD_TRY(chat_create(choice, tokenizer, false, &recipe.chat));
    if (!recipe.chat) {
        ZD_BAD("E0464",
               "the model has no chat template, and its tokenizer (%s) the "
               "markers of none",
               tokenizer_facts(tokenizer)->describe);
        return zd_fail_help("without chat the prompt is continued as it is");
    }
    ZD_SCOPED(tokenize_worker_fini) struct tokenize_worker w = {NULL};
    tokenize_worker_init(&w, &recipe);
    *end_out = find_turn_end(&w, content);
    ZD_TRY(chat_render_prompt(&w.renderer, content, NULL, &w.document));
    ZD_TRY(tokenize_document(&w));
    for (size_t i = 0; i < w.words.count; i++)
        token_vector_push(ids, (int32_t)(*word_at(&w.words, i) & WORD_ID));
    return ZD_OK;
}
