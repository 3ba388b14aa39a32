#include "data/tokenize.h"

#include "base/must.h"
#include "data/format.h"
#include "data/record.h"
#include "data/stream.h"

#include <stdlib.h>
#include <string.h>

/* --- units: whole lines of UNIT_BYTES together, or a part of a text. What a
 * unit does not take of the text that was read is kept as `rest` for the next
 * one. */

enum { KEEP_BYTES = 1 << 20 };

void unit_reader_fini(struct unit_reader *reader)
{
    data_stream_close(reader->stream);
    free(reader->rest);
    *reader = (struct unit_reader){.list = NULL};
}

static enum zd_status open_next(struct unit_reader *reader)
{
    ZD_TRY(data_stream_open(
            &reader->list->files[++reader->file], reader->most,
            &reader->stream));
    reader->offset = 0;
    reader->line = 1;
    reader->has_ended = reader->has_unit = false;
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
        const struct unit_reader *reader, const struct data_file *file)
{
    if (file->has_lines)
        ZD_FAIL(ZD_ERR_DATA, "E0440", "%s %lld of %s has more than %zu bytes",
                source_unit(file), (long long)reader->line, file->path,
                reader->most);
    else
        ZD_FAIL(ZD_ERR_DATA, "E0440",
                "%s has more than %zu bytes from byte %llu on without a blank "
                "after a letter or a number, where the tokenizer may cut it",
                file->path, reader->most, (unsigned long long)reader->offset);
    source_place(file, reader->line);
    if (reader->most < RECORD_MAX_BYTES)
        zd_fail_help(
                "`zerod data inspect --job JOB --count 0` tokenizes the data "
                "into the cache, of records of up to %d MiB; then start again",
                RECORD_MAX_BYTES >> 20);
    return ZD_ERR_DATA;
}

/* Up to `want` bytes of text and one more, which shows that more follow. */
static enum zd_status fill(
        struct unit_reader *reader, struct unit *unit, size_t want)
{
    size_t bytes = 0;
    if (reader->has_ended || unit->bytes > want)
        return ZD_OK;
    ZD_GROW(unit->text, unit->capacity, want + 1);
    ZD_TRY(data_stream_read(
            reader->stream, unit->text + unit->bytes, want + 1 - unit->bytes,
            &bytes));
    unit->bytes += bytes;
    reader->has_ended = unit->bytes <= want;
    return ZD_OK;
}

/* As much as UNIT_BYTES holds, or more where it cannot be cut there, into the
 * unit; *part_out: so much of its text belongs to it. */
static enum zd_status read_text(
        struct unit_reader *reader, const struct data_file *file,
        struct unit *unit, size_t *part_out)
{
    for (size_t want = UNIT_BYTES;;) {
        ZD_TRY(fill(reader, unit, want));
        *part_out = reader->has_ended ? unit->bytes
                    : file->has_lines ? cut_lines(unit)
                                      : tokenizer_cut(
                                                reader->tokenizer, unit->text,
                                                unit->bytes - 1);
        if (*part_out > 0 || reader->has_ended)
            return ZD_OK;
        if (unit->bytes > reader->most)
            return fail_long(reader, file);
        if (unit->bytes >= want)
            want = 2 * want < reader->most ? 2 * want : reader->most;
    }
}

/* The text after the first `part` bytes of the unit is kept. */
static void keep_rest(
        struct unit_reader *reader, const struct unit *unit, size_t part)
{
    size_t rest = unit->bytes - part;
    if (reader->rest_capacity > KEEP_BYTES) {
        free(reader->rest);
        reader->rest = NULL;
        reader->rest_capacity = 0;
    }
    if (rest > reader->rest_capacity)
        ZD_GROW(reader->rest, reader->rest_capacity, rest);
    if (rest > 0)
        memcpy(reader->rest, unit->text + part, rest);
    reader->rest_bytes = rest;
}

/* A byte-order mark at the beginning is no text. */
static void skip_mark(
        struct unit_reader *reader, struct unit *unit, size_t *part)
{
    if (reader->offset > 0 || *part < 3 ||
        memcmp(unit->text, "\xef\xbb\xbf", 3) != 0)
        return;
    reader->offset = 3;
    unit->bytes -= 3;
    *part -= 3;
    memmove(unit->text, unit->text + 3, unit->bytes);
}

/* A unit of the open file; *has_out false: there is no more. */
static enum zd_status read_unit(
        struct unit_reader *reader, struct unit *unit, bool *has_out)
{
    const struct data_file *file = &reader->list->files[reader->file];
    size_t part;
    /* what was kept is the beginning */
    ZD_GROW(unit->text, unit->capacity, reader->rest_bytes + 1);
    unit->bytes = reader->rest_bytes;
    memcpy(unit->text, reader->rest ? reader->rest : "", unit->bytes);
    ZD_TRY(read_text(reader, file, unit, &part));
    skip_mark(reader, unit, &part);
    *has_out = part > 0;
    if (part == 0 && !reader->has_unit)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0439", "%s holds no document", file->path);
    bool is_last = reader->has_ended && part == unit->bytes;
    keep_rest(reader, unit, part);
    unit->file = file;
    unit->offset = reader->offset;
    unit->first_line = reader->line;
    unit->consumed = data_stream_consumed(reader->stream);
    unit->begins = !reader->has_unit;
    unit->ends = is_last;
    unit->bytes = part;
    reader->has_unit |= part > 0;
    reader->offset += part;
    reader->line += count_newlines(unit->text, part);
    if (!is_last && part > 0)
        return ZD_OK;
    data_stream_close(reader->stream);
    reader->stream = NULL;
    return ZD_OK;
}

enum zd_status unit_read(
        struct unit_reader *reader, struct unit *unit, bool *more_out)
{
    *more_out = false;
    while (!*more_out) {
        if (!reader->stream && reader->file + 1 == reader->list->count)
            break;
        if (!reader->stream)
            ZD_TRY(open_next(reader));
        ZD_TRY(read_unit(reader, unit, more_out));
    }
    return ZD_OK;
}

/* --- their words ---------------------------------------------------------- */

void tokenize_worker_init(
        struct tokenize_worker *worker, const struct recipe *recipe)
{
    memset(worker, 0, sizeof *worker);
    worker->recipe = recipe;
    worker->encoder = encoder_create(recipe->tokenizer);
    chat_renderer_init(&worker->renderer, recipe->chat);
}

void tokenize_worker_fini(struct tokenize_worker *worker)
{
    encoder_destroy(worker->encoder);
    chat_renderer_fini(&worker->renderer);
    document_fini(&worker->document);
    free(worker->borders);
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
    ZD_FAIL(ZD_ERR_DATA, "E0435",
            "%s is not UTF-8: byte 0x%02x in %s %lld, at byte offset "
            "%llu of the %s",
            unit->file->path, (unsigned char)text[valid],
            source_unit(unit->file), (long long)line, offset,
            unit->file->container ? "text in it" : "file");
    return source_place(unit->file, line);
}

static uint32_t *words_from(struct token_vector *vector, size_t begin)
{
    return (uint32_t *)vector->ids + begin;
}

static enum zd_status append_text(
        struct tokenize_worker *worker, const char *text, size_t bytes,
        bool continues, bool train, struct token_vector *words)
{
    size_t begin = words->count;
    ZD_TRY(encoder_encode(worker->encoder, text, bytes, continues, words));
    if (!train)
        return ZD_OK;
    uint32_t *added = words_from(words, begin);
    for (size_t i = 0; i < words->count - begin; i++)
        added[i] |= WORD_TRAIN;
    return ZD_OK;
}

/* The first word of a document is never a target. */
static void mark_first(struct token_vector *words, size_t begin)
{
    if (words->count == begin)
        return;
    uint32_t *first = words_from(words, begin);
    *first = (*first & ~WORD_TRAIN) | WORD_FIRST;
}

static void append_prefix(
        const struct tokenize_worker *worker, struct token_vector *words)
{
    const struct token_vector *prefix =
            tokenizer_prefix(worker->recipe->tokenizer);
    token_vector_append(words, prefix->ids, prefix->count);
}

static void append_trained(int32_t id, struct token_vector *words)
{
    token_vector_push(words, (int32_t)((uint32_t)id | WORD_TRAIN));
}

/* What the post-processor puts after a text, then the end of text unless that
 * was the last of it. */
static void append_end_of_text(
        const struct tokenize_worker *worker, struct token_vector *words)
{
    const struct token_vector *suffix =
            tokenizer_suffix(worker->recipe->tokenizer);
    int eos = worker->recipe->eos;
    for (size_t i = 0; i < suffix->count; i++)
        append_trained(suffix->ids[i], words);
    bool has_end = suffix->count > 0 && suffix->ids[suffix->count - 1] == eos;
    if (eos >= 0 && !has_end)
        append_trained(eos, words);
}

/* The text as a whole; what its trained ranges touch is trained. */
static enum zd_status tokenize_chat(
        struct tokenize_worker *worker, struct token_vector *words)
{
    const struct document *document = &worker->document;
    size_t count = 2 * document->trained_count, begin = words->count;
    ZD_GROW(worker->borders, worker->border_capacity, count + 1);
    for (size_t i = 0; i < count; i++)
        worker->borders[i] = (struct encode_border){
                .at = i % 2 ? document->trained[i / 2].end
                            : document->trained[i / 2].begin,
                .is_end = i % 2};
    if (document->adds_prefix)
        append_prefix(worker, words);
    size_t first = words->count, twice = 0;
    ZD_TRY(encoder_encode_borders(
            worker->encoder, document->text, document->bytes, words,
            worker->borders, count));
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
        for (size_t n = worker->borders[i].token;
             n < worker->borders[i + 1].token; n++)
            *words_from(words, n - twice) |= WORD_TRAIN;
    mark_first(words, begin);
    return ZD_OK;
}

static enum zd_status tokenize_document(
        struct tokenize_worker *worker, struct token_vector *words)
{
    const struct document *document = &worker->document;
    size_t begin = words->count;
    if (document->is_chat)
        return tokenize_chat(worker, words);
    append_prefix(worker, words);
    for (int i = 0; i < document->piece_count; i++) {
        const struct piece *piece = &document->pieces[i];
        ZD_TRY(append_text(
                worker, document->text + piece->begin,
                piece->end - piece->begin, piece->begin > 0, piece->train,
                words));
    }
    if (document->end_of_text)
        append_end_of_text(worker, words);
    mark_first(words, begin);
    return ZD_OK;
}

/* A JSON error knows its place in the line; the line's place in the file is
 * known here. */
static void place_in_file(const struct data_file *file, int64_t line)
{
    struct zd_error error = *zd_error_get();
    const char *colon = strrchr(error.where, ':');
    int column = colon ? atoi(colon + 1) : 1;
    bool is_line = strcmp(source_unit(file), "line") == 0;
    snprintf(
            error.where, sizeof error.where, "%s:%s%lld:%d", file->path,
            is_line ? "" : "row ", (long long)line, column);
    zd_error_set(&error);
    if (is_line)
        zd_fail_help("each line of the file is one JSON object");
}

static enum zd_status tokenize_line(
        struct tokenize_worker *worker, const struct unit *unit, int64_t line,
        const char *text, size_t bytes, struct token_vector *words)
{
    json_t *record;
    ZD_TRY(check_utf8(unit, text, bytes));
    enum zd_status status = json_parse_record(
            text, bytes, unit->file->path, ZD_ERR_DATA, &record);
    if (status != ZD_OK) {
        place_in_file(unit->file, line);
        return status;
    }
    record = columns_apply(worker->recipe->entry, record);
    const struct reading reading = {
            worker->recipe, &worker->renderer, record, &worker->document};
    status = format_read(&reading, unit->file->format);
    json_decref(record);
    if (status == ZD_OK)
        status = tokenize_document(worker, words);
    if (status != ZD_OK)
        source_place(unit->file, line);
    return status;
}

/* What is told of a row whose words begin at `begin`. */
static void note_row(
        struct tokenize_worker *worker, const struct unit *unit, int64_t line,
        const struct token_vector *words, size_t begin)
{
    const struct document *document = &worker->document;
    const int64_t specials = document->specials;
    unsigned bits = document->ignored |
                    (unsigned)(specials > 0) << ROW_SPECIALS |
                    1u << ROW_UNTRAINED;
    char row[ROW_BYTES];
    for (size_t i = begin; i < words->count && bits >> ROW_UNTRAINED & 1; i++)
        if ((uint32_t)words->ids[i] & WORD_TRAIN)
            bits &= ~(1u << ROW_UNTRAINED);
    if (!bits)
        return;
    source_row(unit->file, line, row, sizeof row);
    for (int w = 0; w < ROW_NOTES; w++)
        if (bits >> w & 1)
            row_notes_add(
                    &worker->notes, (enum row_note)w,
                    w == ROW_SPECIALS ? specials : 1, row);
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

static enum zd_status tokenize_lines(
        struct tokenize_worker *worker, const struct unit *unit,
        struct token_vector *words)
{
    const char *text = unit->text, *end = unit->text + unit->bytes;
    for (int64_t line = unit->first_line; text < end; line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline ? newline : end;
        size_t before = words->count, bytes = (size_t)(stop - text);
        bool has_row = json_blanks(text, bytes) < bytes;
        enum zd_status status = ZD_OK;
        if (has_row)
            status = tokenize_line(worker, unit, line, text, bytes, words);
        if (status == ZD_ERR_DATA && worker->recipe->skips_bad_rows) {
            words->count = before;
            row_notes_take_error(&worker->notes);
        } else if (status != ZD_OK) {
            if (status == ZD_ERR_DATA)
                offer_skip();
            return status;
        } else if (has_row) {
            note_row(worker, unit, line, words, before);
        }
        text = newline ? newline + 1 : end;
    }
    return ZD_OK;
}

/* A part of a text file, which is one document. */
static enum zd_status tokenize_text(
        struct tokenize_worker *worker, const struct unit *unit,
        struct token_vector *words)
{
    size_t begin = words->count;
    ZD_TRY(check_utf8(unit, unit->text, unit->bytes));
    if (unit->begins)
        append_prefix(worker, words);
    ZD_TRY(append_text(
            worker, unit->text, unit->bytes, !unit->begins, true, words));
    if (unit->ends)
        append_end_of_text(worker, words);
    if (unit->begins)
        mark_first(words, begin);
    return ZD_OK;
}

enum zd_status tokenize_unit(
        struct tokenize_worker *worker, const struct unit *unit,
        struct token_vector *words)
{
    return unit->file->has_lines ? tokenize_lines(worker, unit, words)
                                 : tokenize_text(worker, unit, words);
}

/* The last trained token of an answer of one letter, unless it is that. */
static int32_t find_turn_end(
        struct tokenize_worker *worker, const char *content)
{
    static const char answer[] = "x";
    struct token_vector words = {0};
    int32_t found = -1;
    const char *text;
    size_t bytes;
    if (chat_render_prompt(
                &worker->renderer, content, answer, &worker->document) ==
                ZD_OK &&
        tokenize_document(worker, &words) == ZD_OK)
        for (size_t i = 0; i < words.count; i++)
            if (*words_from(&words, i) & WORD_TRAIN)
                found = (int32_t)(*words_from(&words, i) & WORD_ID);
    bool is_answer =
            found >= 0 &&
            tokenizer_token_bytes(
                    worker->recipe->tokenizer, found, &text, &bytes) == ZD_OK &&
            bytes <= 2 && memchr(text, answer[0], bytes);
    token_vector_fini(&words);
    zd_error_clear();
    return is_answer ? -1 : found;
}

static enum zd_status encode_chat_prompt(
        struct tokenize_worker *worker, const char *content,
        struct token_vector *ids, int32_t *end_out)
{
    *end_out = find_turn_end(worker, content);
    ZD_TRY(chat_render_prompt(
            &worker->renderer, content, NULL, &worker->document));
    ZD_TRY(tokenize_document(worker, ids));
    for (size_t i = 0; i < ids->count; i++)
        ids->ids[i] = (int32_t)(*words_from(ids, i) & WORD_ID);
    return ZD_OK;
}

enum zd_status tokenize_chat_prompt(
        const struct tokenizer *tokenizer, const char *content,
        const struct chat_choice *choice, struct token_vector *ids,
        int32_t *end_out)
{
    struct recipe recipe = {.tokenizer = tokenizer, .eos = -1};
    struct tokenize_worker worker = {0};
    size_t valid = utf8_valid_prefix(content, strlen(content));
    if (content[valid])
        return ZD_FAIL(
                ZD_ERR_DATA, "E0413", "invalid UTF-8 at byte offset %zu",
                valid);
    ZD_TRY(chat_create(choice, tokenizer, false, &recipe.chat));
    if (!recipe.chat) {
        ZD_FAIL(ZD_ERR_DATA, "E0464",
                "the model has no chat template, and its tokenizer (%s) the "
                "markers of none",
                tokenizer_describe(tokenizer));
        return zd_fail_help("without --chat the prompt is continued as it is");
    }
    tokenize_worker_init(&worker, &recipe);
    enum zd_status status = encode_chat_prompt(&worker, content, ids, end_out);
    tokenize_worker_fini(&worker);
    chat_destroy(recipe.chat);
    return status;
}
