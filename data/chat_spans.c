/* chat_spans.c - which text of a rendered conversation is whose, for templates
 * without {% generation %}.
 *
 *   skeleton <|im_start|>user\n[0]<|im_end|>\n<|im_start|>assistant\n[1]...
 *   prompt   <|im_start|>user\n[0]<|im_end|>\n<|im_start|>assistant\n
 *
 * A message's range begins where the prompt ends, which is the skeleton of the
 * messages before it with add_generation_prompt, and ends where the skeleton of
 * the messages up to it does, without the white space at its end. A template
 * that looks ahead (Qwen3 drops thoughts of earlier turns) makes other text of
 * these; then only what they add to the last mark is looked for around the
 * message's marks.
 *
 * A template that looks into the words of users is tried again with marks for
 * the assistant alone, one that escapes or quotes words, or leaves out calls,
 * with marks for pieces of them, and one that looks into all without any. */
#include "data/chat_skeleton.h"

#include <ctype.h>
#include <string.h>

/* --- the edges of a message ----------------------------------------------- */

/* Of the template's own text around a message, in the skeleton. */
struct around {
    size_t before, first; /* between the mark before it and its first one */
    size_t last, after;   /* between its last one and the next */
};

/* Where a message has its marks; false: others lie between them. */
static bool find_around(
        const struct skeleton *s, size_t message, struct around *out)
{
    const struct message_place *of = &s->of[message];
    if (of->is_torn)
        return false;
    out->before =
            of->first > 0 ? s->shape.places[of->first - 1].at + MARK_BYTES : 0;
    out->first = s->shape.places[of->first].at;
    out->last = s->shape.places[of->last].at + MARK_BYTES;
    out->after = of->last + 1 < s->shape.place_count
                         ? s->shape.places[of->last + 1].at
                         : s->shape.text.bytes;
    return true;
}

static bool is_prefix(
        const struct jinja_output *text, const struct jinja_output *of)
{
    return text->bytes <= of->bytes &&
           (text->bytes == 0 || memcmp(text->text, of->text, text->bytes) == 0);
}

/* `length` bytes of `text` that go on otherwise: without what may be the begin
 * of a marker, as "<|" is. */
static size_t without_begun_marker(const char *text, size_t length)
{
    for (size_t at = length; at-- > 0 && text[at] != '>';)
        if (text[at] == '<')
            return at;
    return length;
}

/* What was found between the same texts; NO_PLACE: nothing yet. */
static size_t known_edge(
        const struct skeleton *s, const struct edges *edges, size_t from,
        size_t to)
{
    const char *text = s->shape.text.text;
    for (size_t i = 0; i < CHAT_EDGES && i < edges->count; i++) {
        const struct edge *edge = &edges->of[i];
        if (edge->bytes == to - from &&
            memcmp(text + edge->from, text + from, edge->bytes) == 0)
            return from + edge->found;
    }
    return NO_PLACE;
}

static void learn(struct edges *edges, size_t from, size_t to, size_t found)
{
    if (found != NO_PLACE)
        edges->of[edges->count++ % CHAT_EDGES] =
                (struct edge){from, to - from, found - from};
}

/* Where the generation prompt ends in [from, to). What it begins with its last
 * markers may be missing there, as <think> is in earlier turns. NO_PLACE: not
 * found. */
static size_t find_prompt(
        const char *prompt, size_t prompt_bytes, const char *text, size_t from,
        size_t to)
{
    for (size_t length = prompt_bytes; length > 0;) {
        for (size_t at = to; at-- > from;)
            if (at + length <= to && memcmp(text + at, prompt, length) == 0)
                return at + length;
        do
            length--;
        while (length > 0 && prompt[length] != '<');
    }
    return NO_PLACE;
}

/* What add_generation_prompt adds after the first `count` messages or, where
 * these are refused or it is NO_PLACE, after one of a user: `out` from
 * *from_out on. */
static enum zd_status generation_prompt(
        struct skeleton *s, size_t count, struct jinja_output *out,
        size_t *from_out)
{
    struct jinja_output before = {0};
    enum zd_status status = ZD_OK;
    if (count != NO_PLACE)
        status = skeleton_render(s, count, true, out);
    if (count != NO_PLACE && status == ZD_OK)
        status = skeleton_render(s, count, false, &before);
    if (count == NO_PLACE || chat_is_refusal(status)) {
        json_t *one = json_pack("[{s:s, s:s}]", "role", "user", "content", "x");
        status = chat_render_text(s->renderer, s->conversation, one, true, out);
        if (status == ZD_OK)
            status = chat_render_text(
                    s->renderer, s->conversation, one, false, &before);
        json_decref(one);
    }
    size_t same = 0;
    while (same < out->bytes && same < before.bytes &&
           out->text[same] == before.text[same])
        same++;
    *from_out =
            same < before.bytes ? without_begun_marker(out->text, same) : same;
    jinja_output_fini(&before);
    return status;
}

/* In the skeleton; NO_PLACE: not found. */
static enum zd_status find_begin(
        struct skeleton *s, size_t message, const struct around *around,
        size_t *at_out)
{
    struct jinja_output prompt = {0};
    size_t from = 0;
    *at_out = known_edge(s, &s->begins, around->before, around->first);
    if (*at_out != NO_PLACE)
        return ZD_OK;
    enum zd_status status = skeleton_render(s, message, true, &prompt);
    if (status == ZD_OK && is_prefix(&prompt, &s->shape.text) &&
        prompt.bytes >= around->before && prompt.bytes <= around->first) {
        *at_out = prompt.bytes;
    } else if (status == ZD_OK || chat_is_refusal(status)) {
        status = generation_prompt(s, message, &prompt, &from);
        if (status == ZD_OK)
            *at_out = find_prompt(
                    prompt.text + from, prompt.bytes - from, s->shape.text.text,
                    around->before, around->first);
    }
    learn(&s->begins, around->before, around->first, *at_out);
    jinja_output_fini(&prompt);
    return status;
}

/* Bytes of the end mark at `text`, of which `alone` follows the message where
 * it is the last one; NO_PLACE: it cannot be told. A message that the next one
 * may go on from needs none. */
static size_t end_mark(
        const char *text, size_t bytes, const char *alone, size_t alone_bytes,
        bool may_go_on)
{
    size_t same = 0;
    alone_bytes = chat_strip_end(alone, alone_bytes);
    while (same < bytes && same < alone_bytes && text[same] == alone[same])
        same++;
    if (same == alone_bytes)
        return same;
    size_t spaces = without_begun_marker(alone, same);
    same = chat_strip_end(alone, spaces);
    if (same > 0)
        return same;
    /* another mark, as gpt-oss has <|return|> and <|end|> */
    bool has_mark = spaces < bytes && text[spaces] == '<';
    const char *close =
            has_mark ? memchr(text + spaces, '>', bytes - spaces) : NULL;
    if (close)
        return (size_t)(close + 1 - text);
    return may_go_on ? spaces : NO_PLACE;
}

/* The last mark of a message in a text: its word, how often it is there, and
 * where it ends; false: there is none. */
static bool find_last_mark(
        const struct skeleton *s, const struct jinja_output *text,
        size_t message, size_t *word_out, size_t *times_out, size_t *end_out)
{
    const struct chat_memory *memory = s->renderer->memory;
    const char *at = text->text, *end = at + text->bytes;
    bool found = false;
    for (; (at = jinja_find_mark(at, (size_t)(end - at))); at += MARK_BYTES) {
        size_t word = jinja_mark_word(at);
        if (word >= memory->word_count ||
            memory->words[word].message != message)
            continue;
        *times_out = found && word == *word_out ? *times_out + 1 : 1;
        *word_out = word;
        *end_out = (size_t)(at - text->text) + MARK_BYTES;
        found = true;
    }
    return found;
}

/* Without the marks that a later message repeats: the message's own end with
 * this word, the n-th time. */
static void leave_repeated(
        const struct skeleton *s, size_t message, size_t word, size_t n,
        struct around *around)
{
    const struct place *places = s->shape.places;
    for (size_t p = s->of[message].first; p < s->of[message].last; p++) {
        n -= places[p].word == word;
        if (n > 0)
            continue;
        around->last = places[p].at + MARK_BYTES;
        around->after = places[p + 1].at;
        return;
    }
}

static enum zd_status find_end(
        struct skeleton *s, size_t message, struct around *around,
        size_t *at_out)
{
    const char *text = s->shape.text.text;
    size_t word = 0, times = 0, last = around->last, mark = NO_PLACE;
    struct jinja_output upto = {0};
    *at_out = NO_PLACE;
    if (message + 1 == json_array_size(s->messages)) {
        *at_out = last + chat_strip_end(text + last, around->after - last);
        return ZD_OK;
    }
    if (!s->of[message].repeats)
        *at_out = known_edge(s, &s->ends, around->last, around->after);
    if (*at_out != NO_PLACE)
        return ZD_OK;
    ZD_TRY(skeleton_render(s, message + 1, false, &upto));
    if (find_last_mark(s, &upto, message, &word, &times, &last)) {
        if (s->of[message].repeats)
            leave_repeated(s, message, word, times, around);
        mark = end_mark(
                text + around->last, around->after - around->last,
                upto.text + last, upto.bytes - last,
                s->conversation->turns[message + 1].is_assistant);
    }
    jinja_output_fini(&upto);
    if (mark != NO_PLACE)
        *at_out = around->last + mark;
    if (!s->of[message].repeats)
        learn(&s->ends, around->last, around->after, *at_out);
    return ZD_OK;
}

/* Where a message goes on in the turn of the one before it, without a
 * generation prompt: after the end of that. */
static enum zd_status find_seam(
        struct skeleton *s, size_t message, const struct around *around,
        size_t *at_out)
{
    const char *text = s->shape.text.text;
    struct around before;
    if (message == 0 || !s->conversation->turns[message - 1].is_assistant ||
        !s->of[message - 1].has || !find_around(s, message - 1, &before))
        return ZD_OK;
    ZD_TRY(find_end(s, message - 1, &before, at_out));
    while (*at_out < around->first && isspace((unsigned char)text[*at_out]))
        ++*at_out;
    return ZD_OK;
}

/* Where the generation prompt after these messages is not what the text has, as
 * Gemma 4's after a tool's: after what it is after a user's. */
static enum zd_status find_header(
        struct skeleton *s, const struct around *around, size_t *at_out)
{
    struct jinja_output prompt = {0};
    size_t from = 0;
    enum zd_status status = generation_prompt(s, NO_PLACE, &prompt, &from);
    if (status == ZD_OK)
        *at_out = find_prompt(
                prompt.text + from, prompt.bytes - from, s->shape.text.text,
                around->before, around->first);
    learn(&s->begins, around->before, around->first, *at_out);
    jinja_output_fini(&prompt);
    return status;
}

/* Where nothing is the generation prompt, and the texts before the message are
 * other ones, as Mistral's with a message of the system: after what follows the
 * words of the message before it where that is the last one. */
static enum zd_status find_answer(
        struct skeleton *s, size_t message, const struct around *around,
        size_t *at_out)
{
    const struct message_place *before =
            message > 0 ? &s->of[message - 1] : NULL;
    struct jinja_output prompt = {0}, upto = {0};
    size_t word, times, end;
    if (!before || !before->has || before->is_torn || before->repeats ||
        before->last + 1 != s->of[message].first)
        return ZD_OK;
    enum zd_status status = skeleton_render(s, message, true, &prompt);
    if (status == ZD_OK)
        status = skeleton_render(s, message, false, &upto);
    if (status == ZD_OK && prompt.bytes == upto.bytes &&
        is_prefix(&prompt, &upto) &&
        find_last_mark(s, &upto, message - 1, &word, &times, &end) &&
        upto.bytes - end <= around->first - around->before &&
        memcmp(s->shape.text.text + around->before, upto.text + end,
               upto.bytes - end) == 0)
        *at_out = around->before + upto.bytes - end;
    jinja_output_fini(&prompt);
    jinja_output_fini(&upto);
    return status;
}

/* --- ranges --------------------------------------------------------------- */

/* By the texts before and up to a message, where both begin the skeleton, or
 * are the same since the template prints nothing of the message. */
static enum zd_status find_by_prefixes(
        struct skeleton *s, size_t message, size_t *begin_out, size_t *end_out)
{
    bool is_whole = s->renderer->memory->is_whole;
    struct jinja_output plain = {0}, prompt = {0}, upto = {0};
    const struct jinja_output *before = is_whole ? &plain : &prompt;
    enum zd_status status = ZD_OK;
    if (message > 0)
        status = skeleton_render(s, message, false, &plain);
    if (status == ZD_OK && !is_whole)
        status = skeleton_render(s, message, true, &prompt);
    if (status == ZD_OK)
        status = skeleton_render(s, message + 1, false, &upto);
    *begin_out = *end_out = before->bytes;
    bool is_nothing = message > 0 && plain.bytes == upto.bytes &&
                      is_prefix(&plain, &upto);
    bool is_added = !is_nothing && is_prefix(before, &s->shape.text) &&
                    is_prefix(&upto, &s->shape.text);
    size_t end = is_whole ? upto.bytes : chat_strip_end(upto.text, upto.bytes);
    if (is_added && end > before->bytes)
        *end_out = end;
    if (*begin_out > s->shape.text.bytes)
        *begin_out = *end_out = s->shape.text.bytes;
    if (status != ZD_OK || (!is_nothing && !is_added))
        *begin_out = *end_out = NO_PLACE;
    jinja_output_fini(&plain);
    jinja_output_fini(&prompt);
    jinja_output_fini(&upto);
    return status;
}

/* Of a message whose words the template leaves out, and which is the only one
 * of the assistant between two marks: after the last generation prompt there.
 */
static enum zd_status find_bare(
        struct skeleton *s, size_t message, size_t *begin_out, size_t *end_out)
{
    const struct word *words = s->renderer->memory->words;
    const struct place *places = s->shape.places;
    const char *text = s->shape.text.text;
    struct jinja_output prompt = {0}, upto = {0};
    size_t p = 0, cut = 0, count = s->shape.place_count;
    while (p < count && words[places[p].word].message < message)
        p++;
    size_t from = p > 0 ? places[p - 1].at + MARK_BYTES : 0;
    size_t to = p < count ? places[p].at : s->shape.text.bytes;
    size_t i = p > 0 ? words[places[p - 1].word].message + 1 : 0;
    size_t end = p < count ? words[places[p].word].message + 1
                           : json_array_size(s->messages);
    for (; i < end; i++)
        if (i != message && s->conversation->turns[i].is_assistant)
            return ZD_OK;
    enum zd_status status = generation_prompt(s, message, &prompt, &cut);
    if (status == ZD_OK)
        status = skeleton_render(s, message + 1, false, &upto);
    if (status == ZD_OK) {
        const char *added = prompt.text + cut;
        size_t bytes = prompt.bytes - cut;
        size_t alone = find_prompt(added, bytes, upto.text, 0, upto.bytes);
        *begin_out = find_prompt(added, bytes, text, from, to);
        if (*begin_out != NO_PLACE && alone != NO_PLACE)
            *end_out = end_mark(
                    text + *begin_out, to - *begin_out, upto.text + alone,
                    upto.bytes - alone, false);
        *end_out += *end_out != NO_PLACE ? *begin_out : 0;
    }
    jinja_output_fini(&prompt);
    jinja_output_fini(&upto);
    return status;
}

static enum zd_status find_range(
        struct skeleton *s, size_t message, size_t *begin_out, size_t *end_out)
{
    struct around around = {0};
    const struct message_place *of = &s->of[message];
    if (s->renderer->memory->is_whole || !of->has) {
        enum zd_status status =
                find_by_prefixes(s, message, begin_out, end_out);
        if (status != ZD_OK && !chat_is_refusal(status))
            return status;
        if (*begin_out != NO_PLACE || s->marked == MARKS_NONE ||
            !s->conversation->turns[message].is_assistant)
            return ZD_OK;
    }
    *begin_out = *end_out = NO_PLACE;
    if (!of->has)
        ZD_TRY(find_bare(s, message, begin_out, end_out));
    else if (!find_around(s, message, &around))
        return ZD_OK;
    else
        ZD_TRY(find_begin(s, message, &around, begin_out));
    if (of->has && *begin_out == NO_PLACE)
        ZD_TRY(find_seam(s, message, &around, begin_out));
    if (of->has && *begin_out == NO_PLACE)
        ZD_TRY(find_answer(s, message, &around, begin_out));
    if (of->has && *begin_out == NO_PLACE)
        ZD_TRY(find_header(s, &around, begin_out));
    if (of->has && *begin_out != NO_PLACE)
        ZD_TRY(find_end(s, message, &around, end_out));
    return ZD_OK;
}

/* *missing_out: the message, from 1, whose range is not found; 0: none. */
static enum zd_status find_ranges(struct skeleton *s, size_t *missing_out)
{
    const struct chat_memory *memory = s->renderer->memory;
    size_t count = json_array_size(s->messages);
    *missing_out = 0;
    for (size_t i = 0; i < count; i++) {
        size_t begin = NO_PLACE, end = NO_PLACE;
        if (!memory->wanted[i])
            continue;
        enum zd_status status = find_range(s, i, &begin, &end);
        if (status != ZD_OK && !chat_is_refusal(status))
            return status;
        if (begin == NO_PLACE || end == NO_PLACE) {
            *missing_out = i + 1;
            return ZD_OK;
        }
        if (begin < end || memory->is_whole)
            shape_train(&s->shape, begin, end);
    }
    return ZD_OK;
}

/* The first message, from 1, that is wanted and has words of another one
 * between its own, as Gemma 4 puts a tool's answer between calls and content;
 * 0: none. */
static size_t find_torn(const struct skeleton *s)
{
    const struct chat_memory *memory = s->renderer->memory;
    for (size_t i = 0; i < json_array_size(s->messages); i++)
        if (memory->wanted[i] && s->of[i].is_torn && !memory->is_whole)
            return i + 1;
    return 0;
}

static enum zd_status fail_missing(const struct chat *chat, size_t message)
{
    ZD_FAIL(ZD_ERR_DATA, "E0417",
            "it cannot be told which text of the chat template is of message "
            "%zu (%s)",
            message, chat->name);
    return zd_fail_help(
            "\"train\": false leaves the message out of the loss; a template "
            "with {%% generation %%} around the assistant's text "
            "(data.chat_template = \"PATH\") says what to train; "
            "data.train_on = \"all\" trains everything");
}

enum zd_status chat_find_spans(
        struct chat_renderer *renderer, const struct conversation *conversation,
        struct shape *known, struct document *document)
{
    struct chat_memory *memory = renderer->memory;
    size_t missing = 1, first = 0;
    bool explains = known && shape_explains(
                                     known, memory, renderer->text.text,
                                     renderer->text.bytes);
    if (explains)
        shape_apply(known, document);
    for (int marked = known ? MARKS_ASSISTANT : MARKS_ALL;
         missing && !explains && marked <= MARKS_NONE; marked++) {
        struct skeleton skeleton = {
                .renderer = renderer, .conversation = conversation};
        bool is_sound = false;
        if (marked != MARKS_ALL)
            chat_write_key(memory, conversation, (enum marked)marked);
        enum zd_status status =
                skeleton_make(&skeleton, (enum marked)marked, &is_sound);
        /* marks of the assistant alone do not show it */
        size_t torn =
                is_sound && marked == MARKS_ALL ? find_torn(&skeleton) : 0;
        if (torn) {
            skeleton_fini(&skeleton);
            return fail_missing(renderer->chat, torn);
        }
        if (status == ZD_OK && is_sound)
            status = find_ranges(&skeleton, &missing);
        if (status == ZD_OK && is_sound && !missing) {
            shape_apply(&skeleton.shape, document);
            if (marked == MARKS_ALL)
                chat_keep_shape(memory, &skeleton.shape);
        }
        skeleton_fini(&skeleton);
        if (status != ZD_OK && !chat_is_refusal(status))
            return status;
        if (!first && is_sound)
            first = missing;
    }
    return missing && !explains
                   ? fail_missing(renderer->chat, first ? first : 1)
                   : ZD_OK;
}
